"""cuDNN chooses among deterministic convolution algorithms."""

from __future__ import annotations

from samerun.control.switches.started import torch_c, torch_has
from samerun.control.switches.switch import Policy, Switch


def _available() -> bool:
    return torch_has("_get_cudnn_deterministic", "_set_cudnn_deterministic")


def _read() -> bool:
    return bool(torch_c()._get_cudnn_deterministic())


def _write(value: bool) -> None:
    torch_c()._set_cudnn_deterministic(value)


def _wanted(policy: Policy) -> bool:
    return True


SWITCH = Switch(
    "cudnn_deterministic",
    "cuDNN takes only convolution algorithms that give the same bits each time.",
    "Some backward algorithms of cuDNN add with atomics. torch.use_deterministic_algorithms does not set this"
    " flag (torch looks at both); it is set so that whoever reads it sees what is in force.",
    "any time",
    _read,
    _write,
    _wanted,
    "torch",
    _available,
    default=False,
)

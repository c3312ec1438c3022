"""cuDNN does not time convolution algorithms to choose one."""

from __future__ import annotations

from samerun.control.switches.started import torch_c, torch_has
from samerun.control.switches.switch import Policy, Switch


def _available() -> bool:
    return torch_has("_get_cudnn_benchmark", "_set_cudnn_benchmark")


def _read() -> bool:
    return bool(torch_c()._get_cudnn_benchmark())


def _write(value: bool) -> None:
    torch_c()._set_cudnn_benchmark(value)


def _wanted(policy: Policy) -> bool | None:
    return False if policy.cudnn_benchmark == "off" else None


SWITCH = Switch(
    "cudnn_benchmark",
    "cuDNN chooses a convolution algorithm by rule, not by timing them.",
    "A timing comes out differently in the next process, and another algorithm gives other bits. Within one"
    ' process the choice stays: who needs no more than that passes cudnn_benchmark="keep" and may leave it on.',
    "any time",
    _read,
    _write,
    _wanted,
    "torch",
    _available,
    default=False,
)

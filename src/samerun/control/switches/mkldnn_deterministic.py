"""oneDNN's deterministic kernels, on CPUs and Intel GPUs."""

from __future__ import annotations

from samerun.control.switches.started import torch_c, torch_has
from samerun.control.switches.switch import Policy, Switch


def _available() -> bool:
    return torch_has("_get_mkldnn_deterministic", "_set_mkldnn_deterministic")


def _read() -> bool:
    return bool(torch_c()._get_mkldnn_deterministic())


def _write(value: bool) -> None:
    torch_c()._set_mkldnn_deterministic(value)


def _wanted(policy: Policy) -> bool:
    return True


SWITCH = Switch(
    "mkldnn_deterministic",
    "oneDNN (CPU and Intel GPU kernels) takes only deterministic algorithms.",
    "The flag is off after torch.use_deterministic_algorithms(True) and has to be set by itself.",
    "any time",
    _read,
    _write,
    _wanted,
    "torch",
    _available,
    default=False,
)

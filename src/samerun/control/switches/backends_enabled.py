"""Which of torch's backends are switched on: recorded."""

from __future__ import annotations

from samerun.control.switches.started import torch_c, torch_has
from samerun.control.switches.switch import Switch, Value

_GETTERS = {
    "cudnn": "_get_cudnn_enabled",
    "mkldnn": "_get_mkldnn_enabled",
    "nnpack": "_get_nnpack_enabled",
    "miopen_immediate": "_get_miopen_immediate",
    "cudnn_depthwise_kernel": "_get_cudnn_depthwise_kernel",
}


def _available() -> bool:
    return torch_has("_get_cudnn_enabled", "_get_mkldnn_enabled")


def _read() -> dict[str, Value]:
    return {name: getattr(torch_c(), getter)() for name, getter in _GETTERS.items() if torch_has(getter)}


def _restore(saved: dict[str, Value]) -> None:
    for name, value in saved.items():
        if _read()[name] != value:
            getattr(torch_c(), _GETTERS[name].replace("_get_", "_set_"))(value)


SWITCH = Switch(
    "backends_enabled",
    "Which libraries torch hands convolutions and matrix products to.",
    "Any choice gives the same in every run, as long as it stays. torch.backends.cudnn.flags() switches cuDNN off"
    " unless enabled=True is passed.",
    "any time",
    _read,
    module="torch",
    available=_available,
    restore=_restore,
    default={
        "cudnn": True,
        "mkldnn": True,
        "nnpack": True,
        "miopen_immediate": False,
        "cudnn_depthwise_kernel": "auto",
    },
)

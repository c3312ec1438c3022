"""Which of torch's backends and faster paths are in use: recorded, never set."""

from __future__ import annotations

from samerun.control.imported import find_imported, get_imported
from samerun.control.switches.switch import Switch, Value
from samerun.control.switches.torch_flags import get_torch_c_module, torch_c_has_functions

# Which of torch's backends are switched on: recorded.

_ENABLED_GETTERS = {
    "cudnn": "_get_cudnn_enabled",
    "mkldnn": "_get_mkldnn_enabled",
    "nnpack": "_get_nnpack_enabled",
    "miopen_immediate": "_get_miopen_immediate",
    "cudnn_depthwise_kernel": "_get_cudnn_depthwise_kernel",
}


def _enabled_backends_available() -> bool:
    return torch_c_has_functions("_get_cudnn_enabled", "_get_mkldnn_enabled")


def _read_enabled_backends() -> dict[str, Value]:
    c_module = get_torch_c_module()
    return {
        name: getattr(c_module, getter)() for name, getter in _ENABLED_GETTERS.items() if torch_c_has_functions(getter)
    }


def _restore_enabled_backends(saved: dict[str, Value]) -> None:
    for name, value in saved.items():
        if _read_enabled_backends()[name] != value:
            getattr(get_torch_c_module(), _ENABLED_GETTERS[name].replace("_get_", "_set_"))(value)


ENABLED = Switch(
    "backends_enabled",
    "Which libraries torch hands convolutions and matrix products to.",
    "Any choice gives the same in every run, as long as it stays. torch.backends.cudnn.flags() switches cuDNN off"
    " unless enabled=True is passed.",
    "any time",
    _read_enabled_backends,
    module="torch",
    available=_enabled_backends_available,
    restore=_restore_enabled_backends,
    default={
        "cudnn": True,
        "mkldnn": True,
        "nnpack": True,
        "miopen_immediate": False,
        "cudnn_depthwise_kernel": "auto",
    },
)


# Faster paths that eager mode takes when it can: recorded.


def _eager_choices_available() -> bool:
    return find_imported("torch", "backends", "_C") is not None


def _read_eager_choices() -> dict[str, Value]:
    backends = get_imported("torch").backends
    einsum = backends.opt_einsum
    return {
        "mha_fastpath": bool(backends.mha.get_fastpath_enabled()),
        "opt_einsum": bool(einsum.is_available()),
        "opt_einsum_enabled": bool(einsum.enabled),
        "opt_einsum_strategy": einsum.strategy,
    }


def _restore_eager_choices(saved: dict[str, Value]) -> None:
    backends, now = get_imported("torch").backends, _read_eager_choices()
    if now["mha_fastpath"] != saved["mha_fastpath"]:
        backends.mha.set_fastpath_enabled(saved["mha_fastpath"])
    if now["opt_einsum_enabled"] != saved["opt_einsum_enabled"]:
        backends.opt_einsum.enabled = saved["opt_einsum_enabled"]
    if now["opt_einsum_strategy"] != saved["opt_einsum_strategy"]:
        backends.opt_einsum.strategy = saved["opt_einsum_strategy"]


EAGER_CHOICES = Switch(
    "eager_choices",
    "Whether attention modules take their fast path in inference, and whether einsum looks for a better order.",
    "einsum does so if the package opt_einsum is installed: another order gives other bits, but the same in every"
    " run of one environment.",
    "any time",
    _read_eager_choices,
    module="torch",
    available=_eager_choices_available,
    restore=_restore_eager_choices,
    default={"mha_fastpath": True},
)

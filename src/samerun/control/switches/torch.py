"""Torch itself: its deterministic mode, its implementations of attention, and the backends it uses."""

from __future__ import annotations

import sys
from typing import Any, Literal

from samerun.control.imported import find_imported_module, get_imported_module
from samerun.control.switches.switch import (
    Policy,
    Switch,
    Value,
    get_torch_c_module,
    make_torch_flag_switch,
    torch_c_has_functions,
    want_false_unless_precision_kept,
)

# Operators use an algorithm that gives the same bits each time, or raise.
#
# Set through torch's C module: `torch.use_deterministic_algorithms` imports inductor's settings (a second of
# work) and overwrites what the user chose there; they are a switch of their own.


def _deterministic_algorithms_available() -> bool:
    return torch_c_has_functions(
        "_get_deterministic_algorithms", "_get_deterministic_algorithms_warn_only", "_set_deterministic_algorithms"
    )


AlgorithmsMode = Literal["off", "warn", "error"]


def _read_deterministic_algorithms_mode() -> AlgorithmsMode:
    if not get_torch_c_module()._get_deterministic_algorithms():
        return "off"
    return "warn" if get_torch_c_module()._get_deterministic_algorithms_warn_only() else "error"


def _set_deterministic_algorithms_mode(mode: AlgorithmsMode) -> None:
    get_torch_c_module()._set_deterministic_algorithms(mode != "off", warn_only=mode == "warn")


def _save_deterministic_algorithms_flags() -> tuple[bool, bool]:
    return (
        get_torch_c_module()._get_deterministic_algorithms(),
        get_torch_c_module()._get_deterministic_algorithms_warn_only(),
    )


def _restore_deterministic_algorithms_flags(saved: tuple[bool, bool]) -> None:
    enabled, warn_only = saved
    get_torch_c_module()._set_deterministic_algorithms(enabled, warn_only=warn_only)


def _wanted_deterministic_algorithms_mode(policy: Policy) -> AlgorithmsMode:
    return policy.level


ALGORITHMS = Switch(
    "deterministic_algorithms",
    "Operators use an algorithm that gives the same bits each time; those that have none raise.",
    "Many CUDA operators add in the order in which threads happen to arrive, and so do a few on the CPU. With"
    ' level="warn" those without another algorithm only warn: then memory-efficient attention is switched off'
    " too, because torch lets it stay nondeterministic in this mode.",
    "any time",
    _read_deterministic_algorithms_mode,
    _set_deterministic_algorithms_mode,
    _wanted_deterministic_algorithms_mode,
    "torch",
    _deterministic_algorithms_available,
    _save_deterministic_algorithms_flags,
    _restore_deterministic_algorithms_flags,
    default="off",
)


# Operators of which torch has no deterministic algorithm are computed by samerun's.
#
# The kernels import torch, so this file imports them only when it installs them. What is in force is asked of torch's
# dispatcher; while their module is not loaded, nobody can have installed them.

_KERNELS_MODULE = "samerun.control.deterministic_kernels.install"


def _operators_can_be_replaced() -> bool:
    torch = find_imported_module("torch", "library", "version")
    return (
        torch is not None
        and torch_c_has_functions("_dispatch_has_kernel_for_dispatch_key")
        and hasattr(torch.library, "get_kernel")
    )


def _read_operator_provider() -> str:
    install: Any = sys.modules.get(_KERNELS_MODULE)
    return "torch" if install is None else str(install.installed_provider())


def _set_operator_provider(provider: Literal["torch", "samerun"]) -> None:
    from samerun.control.deterministic_kernels import install

    if provider == "torch":
        install.uninstall()
    else:
        install.install()


def _wanted_operator_provider(policy: Policy) -> Literal["samerun"]:
    return "samerun"


OPERATORS = Switch(
    "deterministic_operators",
    "Operators of which torch has no deterministic algorithm are computed by samerun's.",
    "In its deterministic mode torch refuses a number of operators, most of them on CUDA: gradients of pooling, padding"
    " and interpolation, cumsum, histc and others. Kernels that give the same bits each time stand in for them in"
    " torch's dispatcher, so that user code need not change. Which ones, how, and at what cost: the page on operators.",
    "any time",
    _read_operator_provider,
    _set_operator_provider,
    _wanted_operator_provider,
    "torch",
    _operators_can_be_replaced,
    default="torch",
)


# `torch.empty` and its like give a known value while deterministic algorithms are on.


def _wanted_fill_uninitialized_memory(policy: Policy) -> bool:
    return policy.fill_uninitialized_memory


FILL_UNINITIALIZED_MEMORY = make_torch_flag_switch(
    "fill_uninitialized_memory",
    "Fresh memory holds NaN (floats) or the largest value (integers) instead of what was there before.",
    "A program that reads memory before it writes it gets other bits in every run. Filling costs time:"
    " deterministic(fill_uninitialized_memory=False) saves it, for programs that never do that.",
    ("_get_deterministic_fill_uninitialized_memory", "_set_deterministic_fill_uninitialized_memory"),
    _wanted_fill_uninitialized_memory,
    default=True,
)


# Which implementations of attention may be chosen.

_SDPA_KINDS = ("flash", "mem_efficient", "math", "cudnn")


def _sdpa_available() -> bool:
    getters = (f"_get_{kind}_sdp_enabled" for kind in _SDPA_KINDS)
    setters = (f"_set_sdp_use_{kind}" for kind in _SDPA_KINDS)
    return torch_c_has_functions(*getters, *setters)


def _read_sdpa_backends() -> dict[str, bool]:
    return {kind: bool(getattr(get_torch_c_module(), f"_get_{kind}_sdp_enabled")()) for kind in _SDPA_KINDS}


def _set_sdpa_backends(enabled_by_kind: dict[str, bool]) -> None:
    for kind, enabled in enabled_by_kind.items():
        getattr(get_torch_c_module(), f"_set_sdp_use_{kind}")(enabled)


def _sdpa_backends_to_turn_off(policy: Policy) -> dict[str, bool]:
    return {"cudnn": False, "mem_efficient": False} if policy.level == "warn" else {"cudnn": False}


def _sdpa_backends_agree(read: dict[str, bool], wanted: dict[str, bool]) -> bool:
    return all(read[kind] == enabled for kind, enabled in wanted.items())


SDPA = Switch(
    "sdpa",
    "Attention is computed by an implementation that can be deterministic.",
    "cuDNN's attention is off. Flash and memory-efficient attention are deterministic when deterministic"
    ' algorithms are on in the mode "error"; in the mode "warn" memory-efficient attention stays'
    " nondeterministic, so it is off there.",
    "any time",
    _read_sdpa_backends,
    _set_sdpa_backends,
    _sdpa_backends_to_turn_off,
    "torch",
    _sdpa_available,
    agrees=_sdpa_backends_agree,
    default=dict.fromkeys(_SDPA_KINDS, True),
)


# The plain implementation of attention computes half precision inputs in float32.

MATH_SDP_REDUCTION = make_torch_flag_switch(
    "math_sdp_reduction",
    "Attention in its plain implementation keeps float32 between its steps for half precision inputs.",
    'It is the fallback when no other implementation is deterministic. Left alone with precision="keep".',
    ("_get_math_sdp_allow_fp16_bf16_reduction", "_set_math_sdp_allow_fp16_bf16_reduction"),
    want_false_unless_precision_kept,
)


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


def _read_enabled_convolution_and_matmul_libraries() -> dict[str, Value]:
    c_module = get_torch_c_module()
    return {
        name: getattr(c_module, getter)() for name, getter in _ENABLED_GETTERS.items() if torch_c_has_functions(getter)
    }


def _restore_enabled_flags_of_torch_backends(saved: dict[str, Value]) -> None:
    for name, value in saved.items():
        if _read_enabled_convolution_and_matmul_libraries()[name] != value:
            getattr(get_torch_c_module(), _ENABLED_GETTERS[name].replace("_get_", "_set_"))(value)


ENABLED_BACKENDS = Switch(
    "backends_enabled",
    "Which libraries torch hands convolutions and matrix products to.",
    "Any choice gives the same in every run, as long as it stays. torch.backends.cudnn.flags() switches cuDNN off"
    " unless enabled=True is passed.",
    "any time",
    _read_enabled_convolution_and_matmul_libraries,
    module="torch",
    available=_enabled_backends_available,
    restore=_restore_enabled_flags_of_torch_backends,
    default={
        "cudnn": True,
        "mkldnn": True,
        "nnpack": True,
        "miopen_immediate": False,
        "cudnn_depthwise_kernel": "auto",
    },
)


# Faster paths that eager mode takes when it can: recorded.


def _is_torch_fully_imported() -> bool:
    return find_imported_module("torch", "backends", "_C") is not None


def _read_mha_and_einsum_settings() -> dict[str, Value]:
    backends = get_imported_module("torch").backends
    einsum = backends.opt_einsum
    return {
        "mha_fastpath": bool(backends.mha.get_fastpath_enabled()),
        "opt_einsum": bool(einsum.is_available()),
        "opt_einsum_enabled": bool(einsum.enabled),
        "opt_einsum_strategy": einsum.strategy,
    }


def _restore_mha_and_einsum_settings(saved: dict[str, Value]) -> None:
    backends, now = get_imported_module("torch").backends, _read_mha_and_einsum_settings()
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
    _read_mha_and_einsum_settings,
    module="torch",
    available=_is_torch_fully_imported,
    restore=_restore_mha_and_einsum_settings,
    default={"mha_fastpath": True},
)

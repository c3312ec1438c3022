"""Torch's deterministic mode, and samerun's kernels for the operators that it refuses."""

from __future__ import annotations

import sys
from typing import Any

from samerun.control.imported import find_imported
from samerun.control.switches.switch import Policy, Switch
from samerun.control.switches.torch_flags import get_torch_c_module, make_flag_switch, torch_c_has_functions

# Operators use an algorithm that gives the same bits each time, or raise.
#
# Set through torch's C module: `torch.use_deterministic_algorithms` imports inductor's settings (a second of
# work) and overwrites what the user chose there; they are a switch of their own.


def _algorithms_available() -> bool:
    return torch_c_has_functions(
        "_get_deterministic_algorithms", "_get_deterministic_algorithms_warn_only", "_set_deterministic_algorithms"
    )


def _read_algorithms_mode() -> str:
    if not get_torch_c_module()._get_deterministic_algorithms():
        return "off"
    return "warn" if get_torch_c_module()._get_deterministic_algorithms_warn_only() else "error"


def _set_algorithms_mode(value: str) -> None:
    get_torch_c_module()._set_deterministic_algorithms(value != "off", warn_only=value == "warn")


def _save_algorithms_flags() -> tuple[bool, bool]:
    return (
        get_torch_c_module()._get_deterministic_algorithms(),
        get_torch_c_module()._get_deterministic_algorithms_warn_only(),
    )


def _restore_algorithms_flags(saved: tuple[bool, bool]) -> None:
    enabled, warn_only = saved
    get_torch_c_module()._set_deterministic_algorithms(enabled, warn_only=warn_only)


def _choose_algorithms_mode(policy: Policy) -> str:
    return policy.level


ALGORITHMS = Switch(
    "deterministic_algorithms",
    "Operators use an algorithm that gives the same bits each time; those that have none raise.",
    "Many CUDA operators add in the order in which threads happen to arrive, and so do a few on the CPU. With"
    ' level="warn" those without another algorithm only warn: then memory-efficient attention is switched off'
    " too, because torch lets it stay nondeterministic in this mode.",
    "any time",
    _read_algorithms_mode,
    _set_algorithms_mode,
    _choose_algorithms_mode,
    "torch",
    _algorithms_available,
    _save_algorithms_flags,
    _restore_algorithms_flags,
    default="off",
)


# Operators of which torch has no deterministic algorithm are computed by samerun's.
#
# The kernels import torch, so this file imports them only when it installs them. What is in force is asked of torch's
# dispatcher; while their module is not loaded, nobody can have installed them.

_KERNELS_MODULE = "samerun.control.operators.install"


def _operators_can_be_replaced() -> bool:
    torch = find_imported("torch", "library", "version")
    return (
        torch is not None
        and torch_c_has_functions("_dispatch_has_kernel_for_dispatch_key")
        and hasattr(torch.library, "get_kernel")
    )


def _read_operator_provider() -> str:
    install: Any = sys.modules.get(_KERNELS_MODULE)
    return "torch" if install is None else str(install.installed_provider())


def _set_operator_provider(value: str) -> None:
    from samerun.control.operators import install

    if value == "torch":
        install.uninstall()
    else:
        install.install()


def _choose_operator_provider(policy: Policy) -> str:
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
    _choose_operator_provider,
    "torch",
    _operators_can_be_replaced,
    default="torch",
)


# `torch.empty` and its like give a known value while deterministic algorithms are on.


def _choose_fill_uninitialized_memory(policy: Policy) -> bool:
    return policy.fill_uninitialized_memory


FILL_UNINITIALIZED_MEMORY = make_flag_switch(
    "fill_uninitialized_memory",
    "Fresh memory holds NaN (floats) or the largest value (integers) instead of what was there before.",
    "A program that reads memory before it writes it gets other bits in every run. Filling costs time:"
    " deterministic(fill_uninitialized_memory=False) saves it, for programs that never do that.",
    ("_get_deterministic_fill_uninitialized_memory", "_set_deterministic_fill_uninitialized_memory"),
    _choose_fill_uninitialized_memory,
    default=True,
)

"""Operators that torch replaces by Triton or CuteDSL kernels when those packages are installed."""

from __future__ import annotations

import os

from samerun.control.seeds.loaded import loaded
from samerun.control.switches.started import torch_started
from samerun.control.switches.switch import Policy, Switch, Variable, set_variables

NAME = "TORCH_DISABLE_NATIVE_JIT"


def _available() -> bool:
    torch = loaded("torch", "_C", "backends")
    if torch is None:
        return True  # not known yet
    return loaded("torch._native.common_utils", "check_native_jit_disabled") is not None and bool(
        torch.backends.cuda.is_built()
    )


def _in_force() -> str | None:
    """What torch found as it was imported, which it keeps."""
    module = loaded("torch._native.common_utils", "check_native_jit_disabled")
    if module is not None and module.check_native_jit_disabled():
        return "1"
    return "0" if os.environ.get(NAME) == "0" else None


def _wanted(policy: Policy) -> str:
    return "1"


def _valid(value: str, policy: Policy) -> bool:
    return value in ("0", "1")


_VARIABLE = Variable(NAME, _wanted, _valid, "1 (or 0)", torch_started, _in_force, required=False)

SWITCH = Switch(
    "native_overrides",
    "CUDA operators are torch's own, whatever other packages are installed.",
    "From torch 2.13 on, topk, scatter_add, fused norms and others are replaced if Triton or CuteDSL is there:"
    " then bits depend on the packages of a machine. In deterministic mode the replacements are deterministic,"
    " so being too late is no error.",
    "before torch",
    set_variables((_VARIABLE,)),
    available=_available,
    variables=(_VARIABLE,),
)

"""Operators of which torch has no deterministic algorithm are computed by samerun's.

The kernels and their table are loaded when they are put in force: they need torch. What is in force is asked of
torch's dispatcher; as long as they are not loaded, nobody can have put them there.
"""

from __future__ import annotations

import sys
from typing import Any

from samerun.control.seeds.loaded import loaded
from samerun.control.switches.started import torch_has
from samerun.control.switches.switch import Policy, Switch

KERNELS = "samerun.control.operators.install"


def _available() -> bool:
    torch = loaded("torch", "library", "version")
    return (
        torch is not None
        and torch_has("_dispatch_has_kernel_for_dispatch_key")
        and hasattr(torch.library, "get_kernel")
    )


def _read() -> str:
    install: Any = sys.modules.get(KERNELS)
    return "torch" if install is None else str(install.in_force())


def _write(value: str) -> None:
    from samerun.control.operators import install

    if value == "torch":
        install.uninstall()
    else:
        install.install()


def _wanted(policy: Policy) -> str:
    return "samerun"


SWITCH = Switch(
    "deterministic_operators",
    "Operators of which torch has no deterministic algorithm are computed by samerun's.",
    "In its deterministic mode torch refuses a number of operators, most of them on CUDA: gradients of pooling, padding"
    " and interpolation, cumsum, histc and others. Kernels that give the same bits each time stand in for them in"
    " torch's dispatcher, so that user code need not change. Which ones, how, and at what cost: the page on operators.",
    "any time",
    _read,
    _write,
    _wanted,
    "torch",
    _available,
    default="torch",
)

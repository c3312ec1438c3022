"""Operators use an algorithm that gives the same bits each time, or raise.

Set through torch's C module: `torch.use_deterministic_algorithms` imports inductor's settings (a second of
work) and overwrites what the user chose there; they are a switch of their own.
"""

from __future__ import annotations

from samerun.control.switches.started import torch_c, torch_has
from samerun.control.switches.switch import Policy, Switch


def _available() -> bool:
    return torch_has(
        "_get_deterministic_algorithms", "_get_deterministic_algorithms_warn_only", "_set_deterministic_algorithms"
    )


def _read() -> str:
    if not torch_c()._get_deterministic_algorithms():
        return "off"
    return "warn" if torch_c()._get_deterministic_algorithms_warn_only() else "error"


def _write(value: str) -> None:
    torch_c()._set_deterministic_algorithms(value != "off", warn_only=value == "warn")


def _save() -> tuple[bool, bool]:
    return torch_c()._get_deterministic_algorithms(), torch_c()._get_deterministic_algorithms_warn_only()


def _restore(saved: tuple[bool, bool]) -> None:
    on, warn_only = saved
    torch_c()._set_deterministic_algorithms(on, warn_only=warn_only)


def _wanted(policy: Policy) -> str:
    return policy.level


SWITCH = Switch(
    "deterministic_algorithms",
    "Operators use an algorithm that gives the same bits each time; those that have none raise.",
    "Many CUDA operators add in the order in which threads happen to arrive, and so do a few on the CPU. With"
    ' level="warn" those without another algorithm only warn: then memory-efficient attention is switched off'
    " too, because torch lets it stay nondeterministic in this mode.",
    "any time",
    _read,
    _write,
    _wanted,
    "torch",
    _available,
    _save,
    _restore,
    default="off",
)

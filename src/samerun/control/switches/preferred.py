"""What the three "preferred library" switches share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from samerun.control.seeds.loaded import present
from samerun.control.switches.started import torch_started
from samerun.control.switches.switch import Policy, Switch, Variable


def preferred_switch(
    name: str,
    what: str,
    library: str,
    available: Callable[[], bool],
    variable: str,
    remark: str = "",
) -> Switch:
    """A switch that sets `torch.backends.cuda.<name>_library` to `library` where a heuristic would choose."""

    def call(*arguments: str) -> Any:
        return getattr(present("torch").backends.cuda, f"{name}_library")(*arguments)

    def read() -> str:
        return str(call()).rpartition(".")[2].lower()

    def write(value: str) -> None:
        call(value)

    def wanted(policy: Policy) -> str:
        return library

    return Switch(
        name,
        f"{what} to one library, not to the one that a heuristic picks.",
        f"A library that you chose yourself, by torch's function or by the variable, stays.{remark}",
        "any time",
        read,
        write,
        wanted,
        "torch",
        available,
        agrees=_chosen,
        variables=(Variable(variable, started=torch_started),),
    )


def _chosen(read: str, wanted: str) -> bool:
    """A library that was chosen is as good as ours; only a choice by heuristics is not."""
    return read != "default"

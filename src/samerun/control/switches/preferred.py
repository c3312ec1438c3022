"""What the three "preferred library" switches share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from samerun.control.seeds.loaded import present


def preferred(function: str) -> tuple[Callable[[], str], Callable[[str], None]]:
    """How to read and to write `torch.backends.cuda.<function>`, by the names it takes."""

    def call(*arguments: str) -> Any:
        return getattr(present("torch").backends.cuda, function)(*arguments)

    def read() -> str:
        return str(call()).rpartition(".")[2].lower()

    def write(value: str) -> None:
        call(value)

    return read, write


def chosen(read: str, wanted: str) -> bool:
    """A library that was chosen is as good as ours; only a choice by heuristics is not."""
    return read != "default"

"""The record that every file in this folder exposes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from samerun.base.source_edits import MakeEdits, make_no_edits
from samerun.check.evidence.situation import Situation, Suspect


@dataclass(frozen=True)
class Cause:
    """One kind of cause.

    `find` looks at a difference between runs and names suspects of this kind, none where there is no
    sign of it. `fix` says in one line what to change; `doc` explains it in a paragraph; `make_edits` changes
    the program where that can be done mechanically.
    """

    kind: str
    find: Callable[[Situation], list[Suspect]]
    fix: str
    doc: str
    make_edits: MakeEdits = make_no_edits

"""A file that was read, or looked for, is another one or was not there."""

from __future__ import annotations

import os

from samerun.check.causes.cause import Cause
from samerun.check.evidence.situation import Situation, Suspect, nearness
from samerun.record import pins
from samerun.record.trace import format as f

THERE = ("exists", "lexists", "isfile", "isdir", "getsize")


def find(situation: Situation) -> list[Suspect]:
    found = []
    opened = {clue.source_location for clue in situation.clues_of(f.FILE)}
    for clue in situation.clues_of(f.FILE, f.LOAD, f.FACT):
        if clue.kind == f.LOAD and clue.source_location in opened:  # the same file, known there by its whole path
            continue
        asked = clue.kind == f.FACT
        if asked and (clue.b is None or not clue.a.name.startswith("os.path.") or clue.a.name[8:] not in THERE):
            continue
        name = os.path.basename(clue.a.text) or "a file"
        if asked:
            what = f"{clue.a.name}() at line {clue.a.line} gave another answer about {name}"
        elif clue.b is None:
            what = f"{name} was there to be read by one run only, at line {clue.a.line}"
        else:
            what = f"{name} held something else when it was read at line {clue.a.line}"
        path = relative(clue.a.text)
        found.append(
            Suspect("data-changed", clue.a.file, clue.a.line,
                    (what, "if an earlier run wrote it, the program goes on from its own results"),
                    (1.5 if asked else 1.6) + nearness(situation, clue),
                    (pins.FOLDER,) if path else (), without=(path,) if path and (asked or clue.b is None) else ())
        )  # fmt: skip
    return found[:3]


def relative(path: str) -> str:
    """A path as seen from the working directory; "" where it lies elsewhere."""
    shown = os.path.relpath(path) if path else ""
    return "" if shown.startswith(os.pardir) else shown


CAUSE = Cause(
    "data-changed",
    find,
    "make every run start from the same files (remove what an earlier run left, or write elsewhere)",
    "A program that reads a file which it or something else has changed since the last run does not see the"
    " same data. The common case is a checkpoint left in the working directory.",
)

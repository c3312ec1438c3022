"""A file that was read held something else."""

from __future__ import annotations

import os

from samerun.check.causes.cause import Cause
from samerun.check.situation import Situation, Suspect, nearness
from samerun.record import format as f


def find(situation: Situation) -> list[Suspect]:
    found = []
    for clue in situation.clues_of(f.FILE, f.LOAD):
        name = os.path.basename(clue.a.text) or "a file"
        what = "was there to be read by one run only," if clue.b is None else "held something else when it was read"
        found.append(
            Suspect("data-changed", clue.a.file, clue.a.line,
                    (f"{name} {what} at line {clue.a.line}",
                     "if an earlier run wrote it, the program goes on from its own results"),
                    1.6 + nearness(situation, clue))
        )  # fmt: skip
    return found[:3]


CAUSE = Cause(
    "data-changed",
    find,
    "make every run start from the same files (remove what an earlier run left, or write elsewhere)",
    "A program that reads a file which it or something else has changed since the last run does not see the"
    " same data. The common case is a checkpoint left in the working directory.",
)

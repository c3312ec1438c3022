"""The clock decides something."""

from __future__ import annotations

import os

from samerun.check.causes.cause import Cause
from samerun.check.situation import Situation, Suspect, nearness, same_line
from samerun.check.source import Edit, Source, fixed_seed
from samerun.record import format as f
from samerun.record import pins


def find(situation: Situation) -> list[Suspect]:
    found = []
    for clue in situation.clues_of(f.SEED, f.CREATE):
        if clue.a.unseeded:
            continue
        source = same_line(situation, clue, (f.CLOCK,))
        if source is not None:
            found.append(
                Suspect("time", clue.a.file, source.a.line,
                        (f"{clue.a.name} is seeded at line {clue.a.line} with another value in each run",
                         f"{source.a.name}() is read at line {source.a.line}"),
                        1.3, (pins.CLOCK,))
            )  # fmt: skip
            break
    seen = set()
    for clue in reversed(situation.clues_of(f.CLOCK)):
        if clue.a.direct and clue.place not in seen:
            seen.add(clue.place)
            found.append(
                Suspect("time", clue.a.file, clue.a.line,
                        (f"{clue.a.name}() is read at line {clue.a.line}",),
                        5 + nearness(situation, clue), (pins.CLOCK,))
            )  # fmt: skip
    for clue in situation.clues_of(f.FACT):
        if clue.b is not None and (clue.a.name == "os.stat" or clue.a.name.endswith("time")):
            name = os.path.basename(clue.a.text) or "a file"
            found.append(
                Suspect("time", clue.a.file, clue.a.line,
                        (f"{clue.a.name}() at line {clue.a.line} gave another time of {name}",),
                        4 + nearness(situation, clue), (pins.STAT,))
            )  # fmt: skip
    return found


def patch(source: Source) -> list[Edit]:
    """0 in place of a seed that is made of the clock."""
    return fixed_seed(source)


CAUSE = Cause(
    "time",
    find,
    "do not let the clock decide: use a fixed seed, a number of steps, a date given as an argument",
    "A seed made of the time, a loop that runs for so many seconds, a split by today's date, the newest file: each"
    " gives another result at another moment.",
    patch,
)

"""The clock decides something."""

from __future__ import annotations

import os
import statistics
import struct
from collections import defaultdict
from itertools import pairwise

from samerun.check.causes.cause import Cause
from samerun.check.evidence.situation import Situation, Suspect, nearness, same_line
from samerun.check.evidence.source import Edit, Source, fixed_seed
from samerun.record import pins
from samerun.record.trace import format as f
from samerun.record.trace.run import Event

ALL_NOTED = 64
"""Of so many readings at a line every one is recorded; see `Recorder.should_record`."""


def find(situation: Situation) -> list[Suspect]:
    found = []
    tick = pace(situation.host_events)
    for clue in situation.clues_of(f.SEED, f.CREATE):
        if clue.a.unseeded:
            continue
        source = same_line(situation, clue, (f.CLOCK,))
        if source is not None:
            found.append(
                Suspect("time", clue.a.file, source.a.line,
                        (f"{clue.a.name} is seeded at line {clue.a.line} with another value in each run",
                         f"{source.a.name}() is read at line {source.a.line}"),
                        1.3, (pins.CLOCK,), tick=tick)
            )  # fmt: skip
            break
    seen = set()
    for clue in reversed(situation.clues_of(f.CLOCK)):
        if clue.a.direct and clue.source_location not in seen:
            seen.add(clue.source_location)
            found.append(
                Suspect("time", clue.a.file, clue.a.line,
                        (f"{clue.a.name}() is read at line {clue.a.line}",),
                        5 + nearness(situation, clue), (pins.CLOCK,), tick=tick)
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


def pace(events: list[Event]) -> float:
    """Seconds from one reading of a clock to the next, in the program's course: what runs for so many seconds is then
    about as long under a clock that ticks by count. Of each line the median counts, so that pauses do not."""
    readings = defaultdict(list)
    for event in events:
        if event.kind == f.CLOCK:
            value = struct.unpack_from("<d", event.outputs)[0]
            readings[event.name, event.file, event.line].append(value / 1e9 if event.name.endswith("_ns") else value)
    rate = 0.0
    for values in readings.values():
        between = [b - a for a, b in pairwise(values[:ALL_NOTED])]
        if len(between) > 1:
            rate += 1 / max(statistics.median(between), pins.CLOCK_TICK_SECONDS)
    tick = pins.CLOCK_TICK_SECONDS
    return min(max(1 / rate, tick), pins.SLOWEST_CLOCK_TICK_SECONDS) if rate else tick


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

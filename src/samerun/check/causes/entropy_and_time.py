"""The operating system's entropy, and the clock."""

from __future__ import annotations

import os
import re
import statistics
import struct
from collections import defaultdict
from itertools import pairwise

from samerun.base.seed_edits import make_fixed_seed_edits
from samerun.check.causes.cause import Cause
from samerun.check.evidence.situation import (
    Situation,
    Suspect,
    does_only_one_run_have_file,
    find_seed_source_clue,
    relative_event_distance,
)
from samerun.record import pins
from samerun.record.machine_files import (
    MACHINE_FACTS,
    MACHINE_FILE,
    STARTED_PROGRAM,
    STATE_PROGRAMS,
    TIME_PROGRAMS,
)
from samerun.record.trace import format as f
from samerun.record.trace.run import Event

WORD = re.compile(r"[\w-]+")


# Randomness read from the operating system on purpose or by accident.
def find_os_entropy_suspects(situation: Situation) -> list[Suspect]:
    found = []
    for clue in situation.select_clues(f.SEED):
        if clue.a.name == "torch" and clue.a.is_seeded_by_system:
            found.append(
                Suspect("os-entropy", clue.a.file, clue.a.line,
                        (f"torch.seed() at line {clue.a.line} takes a seed from the operating system",),
                        1.1 + relative_event_distance(situation, clue), (pins.TORCH,))
            )  # fmt: skip
        elif not clue.a.is_seeded_by_system:
            source = find_seed_source_clue(situation, clue, (f.ENTROPY,))
            if source is not None and source.a.line == clue.a.line:
                found.append(
                    Suspect("os-entropy", clue.a.file, clue.a.line,
                            (f"{clue.a.name} is seeded with {source.a.name}() at line {clue.a.line}",),
                            1.0, (pins.ENTROPY,))
                )  # fmt: skip
    for clue in situation.select_clues(f.FACT):
        if clue.a.name in ("os.getpid", "os.getppid"):
            found.append(
                Suspect("os-entropy", clue.a.file, clue.a.line,
                        (f"{clue.a.name}() at line {clue.a.line} is another number in every run",),
                        2.8 + relative_event_distance(situation, clue), (pins.ENTROPY,))
            )  # fmt: skip
        # A program may print how much memory is free: that is no result.
        if clue.a.name in MACHINE_FACTS and clue.b is not None and situation.difference.what != "printed":
            what = clue.a.text if clue.a.name == MACHINE_FILE else f"{clue.a.name}()"
            found.append(
                Suspect("os-entropy", clue.a.file, clue.a.line,
                        (f"{what}, read at line {clue.a.line}, says what the machine is doing: it is another in every"
                         " run",),
                        2.9 + relative_event_distance(situation, clue), (pins.MACHINE,))
            )  # fmt: skip
    found += find_started_programs_whose_output_differs(situation, "os-entropy", STATE_PROGRAMS)
    for clue in situation.select_clues(f.ENTROPY):
        if clue.a.direct:
            found.append(
                Suspect("os-entropy", clue.a.file, clue.a.line,
                        (f"{describe_entropy(clue.a.name)} at line {clue.a.line} gave another value",),
                        3 + relative_event_distance(situation, clue), (pins.ENTROPY,))
            )  # fmt: skip
    return found


def find_started_programs_whose_output_differs(
    situation: Situation, kind: str, programs: tuple[str, ...]
) -> list[Suspect]:
    """Lines that read what one of these programs prints; printing it again is no result."""
    if situation.difference.what == "printed":
        return []
    return [
        Suspect(kind, clue.a.file, clue.a.line,
                (f"{name}, started at line {clue.a.line}, printed something else",),
                2.9 + relative_event_distance(situation, clue), (pins.MACHINE,))
        for clue in situation.select_clues(f.FACT) if clue.a.name == STARTED_PROGRAM and clue.b is not None
        for name in [word for word in WORD.findall(clue.a.text) if word in programs][:1]
    ]  # fmt: skip


def describe_entropy(name: str) -> str:
    """A file or a function that gives random bytes."""
    return name if name.startswith("/") else f"{name}()"


OS_ENTROPY = Cause(
    "os-entropy",
    find_os_entropy_suspects,
    "derive the value from the run's seed instead of the operating system's entropy",
    "os.urandom, uuid4, secrets, random.SystemRandom and torch.seed() cannot be seeded; process numbers and"
    " temporary names differ in every run, and so do free memory, load and free space on disks. A value that"
    " reaches the training from there differs in every run. Native code that asks the system past Python (a tokenizer's"
    " dropout, say) is found on Linux: a preloaded library counts and holds what it draws.",
    make_fixed_seed_edits,
)


# The clock decides something.
ALL_RECORDED = 64
"""Of so many readings at a line every one is recorded; see `Recorder.count_and_should_record_first_or_power_of_two`."""


def find_time_suspects(situation: Situation) -> list[Suspect]:
    found = []
    readings = [e for e in situation.host_events_until_difference if e.kind == f.CLOCK]
    rates = estimate_clock_readings_per_second(readings)
    ticks = {at: seconds_per_reading_or_zero(rate) for at, rate in rates.items()}
    tick_everywhere = seconds_per_reading_or_zero(sum(rates.values()))
    for clue in situation.select_clues(f.SEED, f.CREATE):
        if clue.a.is_seeded_by_system:
            continue
        source = find_seed_source_clue(situation, clue, (f.CLOCK,))
        if source is not None:
            found.append(
                Suspect("time", source.a.file, source.a.line,
                        (f"{clue.a.name} is seeded at line {clue.a.line} with another value in each run",
                         f"{source.a.name}() is read at line {source.a.line}"),
                        1.3, (pins.CLOCK,), tick=ticks.get(source.source_location, 0.0),
                        tick_everywhere=tick_everywhere)
            )  # fmt: skip
            break
    found += find_started_programs_whose_output_differs(situation, "time", TIME_PROGRAMS)
    # A loop reads the clock again and again: what its last reading said decided, and the first differed already.
    last = {(e.file, e.line): e.index for e in readings}
    seen = set()
    for clue in reversed(situation.select_clues(f.CLOCK)):
        if clue.a.direct and clue.source_location not in seen:
            seen.add(clue.source_location)
            found.append(
                Suspect("time", clue.a.file, clue.a.line,
                        (f"{clue.a.name}() is read at line {clue.a.line}",),
                        5 + relative_event_distance(situation, clue, last.get(clue.source_location)),
                        (pins.CLOCK,), tick=ticks.get(clue.source_location, 0.0), tick_everywhere=tick_everywhere)
            )  # fmt: skip
    for clue in situation.select_clues(f.FACT):
        if does_only_one_run_have_file(clue):
            continue
        if clue.b is not None and (clue.a.name == "os.stat" or clue.a.name.endswith("time")):
            name = os.path.basename(clue.a.text) or "a file"
            found.append(
                Suspect("time", clue.a.file, clue.a.line,
                        (f"{clue.a.name}() at line {clue.a.line} gave another time of {name}",),
                        4 + relative_event_distance(situation, clue), (pins.STAT,))
            )  # fmt: skip
    return found


def estimate_clock_readings_per_second(readings: list[Event]) -> dict[tuple[str, int], float]:
    """How often each line (file, line) reads a clock in the program's course; lines read once are left out. Of each
    clock at a line the median interval counts, so that pauses do not."""
    values = defaultdict(list)
    for event in readings:
        value = struct.unpack_from("<d", event.outputs)[0]
        seconds = value / 1e9 if event.name.endswith("_ns") else value
        values[event.name, event.file, event.line].append(seconds)
    rates: dict[tuple[str, int], float] = defaultdict(float)
    for (_, file, line), seconds in values.items():
        between = [b - a for a, b in pairwise(seconds[:ALL_RECORDED])]
        if between:
            rates[file, line] += 1 / max(statistics.median(between), pins.CLOCK_TICK_SECONDS)
    return rates


def seconds_per_reading_or_zero(rate: float) -> float:
    """Seconds from one reading to the next under a clock that ticks by count, so that what runs for so many seconds is
    about as long; 0 where the rate is not known."""
    return min(max(1 / rate, pins.CLOCK_TICK_SECONDS), pins.SLOWEST_CLOCK_TICK_SECONDS) if rate else 0.0


TIME = Cause(
    "time",
    find_time_suspects,
    "do not let the clock decide: use a fixed seed, a number of steps, a date given as an argument",
    "A seed made of the time, a loop that runs for so many seconds, a split by today's date, the newest file: each"
    " gives another result at another moment.",
    make_fixed_seed_edits,
)

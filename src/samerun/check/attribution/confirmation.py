"""When a cause is certain: the experiments that chance and timing cannot explain.

Three things must be seen, in this order. With the suspect's source held still, the difference goes. Without that, it
comes back: whatever else may have changed in the meantime (a file that the first run left, a busy machine) has not
taken it away. And where the source can be held at other values, the results follow it: a source that the program reads
but does not depend on may still shift the moment at which its threads meet.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol

from samerun.check.attribution import native_entropy
from samerun.check.evidence.situation import Situation, Suspect
from samerun.check.evidence.steady import is_steady
from samerun.check.execution.forks import was_forked
from samerun.check.execution.runner import Run
from samerun.check.plan import Plan
from samerun.check.variations.address_layout import fixed_layout
from samerun.check.variations.memory import memory
from samerun.record import pins
from samerun.record.comparison.compare import Difference

BY_CHANCE = ("thread-race", "async-order", "nondeterministic-operator", "object-id", "uninitialised-memory")
"""Kinds that need not show in every run: more runs are held before they count as confirmed."""
MOST_TRIALS = 20
ERROR = 0.05
"""How likely it may be that a difference only happened not to come back."""
OTHER_VALUES = 4
"""A source is held at so many other values: what is decided by one comparison has few outcomes."""
WITH_VALUES = (
    pins.PYTHON, pins.PYTHON_GENERATOR, pins.NUMPY_GLOBAL, pins.NUMPY_GENERATOR, pins.TORCH, pins.TORCH_GENERATOR,
    pins.ENTROPY, pins.NATIVE_ENTROPY, pins.CLOCK,
)  # fmt: skip
"""Pins that can hold a source at one value or another."""
READINGS: dict[tuple[str, ...], float] = {(pins.CLOCK,): 5.0, (pins.ENTROPY,): 2.8}
"""Sources that a program may read at many lines, and the rank from which on a suspect is a mere reading."""


class Runs(Protocol):
    """What experiments need of a search: runs and comparisons."""

    def run(self, plan: Plan, name: str, vary: tuple[str, ...] = (), among_forks: bool = False) -> Run: ...
    def difference(self, a: Run, b: Run) -> Difference | None: ...

    @property
    def reruns(self) -> int: ...
    @property
    def differing(self) -> int: ...


def confirmed(
    search: Runs, situation: Situation, plan: Plan, suspect: Suspect, name: str, names: tuple[str, ...]
) -> bool:
    """Whether the difference goes (or comes only later) with these pins, comes back without, and follows their values.

    Forks lie at other addresses than each other: what stays there may go where addresses are held as well, so that
    fresh processes are asked where forks confirm nothing.
    """
    for among_forks in (True, False):
        experiment = Experiment(search, situation, plan, suspect, name, names, among_forks)
        if experiment.goes() and experiment.comes_back() and experiment.follows_values():
            return True
        if not experiment.forked:
            return False
    return False


class Experiment:
    """One suspect's source held still, let go and held at other values, in runs of one kind: forks or fresh."""

    def __init__(
        self, search: Runs, situation: Situation, plan: Plan, suspect: Suspect, name: str, names: tuple[str, ...],
        among_forks: bool,
    ) -> None:  # fmt: skip
        self.search, self.situation, self.plan, self.suspect = search, situation, plan, suspect
        self.name, self.names, self.among_forks = name, names, among_forks
        self.held = holding(plan, suspect, names)
        self.label = (f"pin:{suspect.kind}",)
        self.trials = trials(search, suspect, is_steady(situation.a.traces))
        self.forked = False
        self.first: Run | None = None
        self.later: Difference | None = None
        """With the source held still: a difference that comes later than the one at hand."""

    def run(self, plan: Plan, what: str) -> Run:
        return self.search.run(plan, f"{self.name}{what}", self.label, self.among_forks)

    def goes(self) -> bool:
        """Held still in several runs: are they the same, as far as the difference reaches?"""
        first = self.first = self.run(self.held, "a")
        self.forked = was_forked(first.folder)
        if first.exit_code != self.situation.a.exit_code:
            return False
        for number in range(self.trials):
            found = self.search.difference(first, self.run(self.held, chr(ord("b") + number)))
            if found is None:
                continue
            if not comes_after(found, self.situation.difference):
                return False
            self.later = found
            if not by_chance(self.suspect):
                break
        return True

    def comes_back(self) -> bool:
        """The unpinned program once more, after the pinned runs: does it still differ, where it did?"""
        free: list[Run | None] = [] if self.forked else [self.situation.b]
        if pins.FOLDER in self.names:  # a file that the first run left is there for every later one
            free = [self.first]
        for number in range(self.trials + 1):
            again = self.run(self.plan, f"-free{number + 1}")
            if any(self._parts(one, again) for one in free):
                return True
            free.append(again)
        return False

    def follows_values(self) -> bool:
        """With the source held at another value: are the results others?"""
        kinds = {name.partition("@")[0] for name in self.names}
        if pins.MEMORY in kinds:
            line = "memory", self.suspect.file, self.suspect.line
            return self._parts(self.first, self.run(memory(self.held, True).with_watch(varied_line=line), "-other"))
        if not kinds <= set(WITH_VALUES):
            return True
        for value in range(1, OTHER_VALUES + 1):
            other = holding(self.plan.with_watch(pin_value=value), self.suspect, self.names)
            if self._parts(self.first, self.run(other, f"-other{value}")):
                return True
        return False

    def _parts(self, one: Run | None, other: Run) -> bool:
        """Whether two runs differ before anything does that differs with the source held still."""
        found = self.search.difference(one, other) if one is not None else None
        return found is not None and (self.later is None or not comes_after(found, self.situation.difference))


def comes_after(found: Difference, before: Difference) -> bool:
    """Whether a difference lies behind another one in the same thread."""
    return (found.role, found.thread) == (before.role, before.thread) and found.ordinal > before.ordinal > 0


def holding(plan: Plan, suspect: Suspect, names: tuple[str, ...]) -> Plan:
    """The plan with a suspect's source held still."""
    held = plan.with_pins(*names)
    if pins.THREADS in names:
        held = held.with_environment(OMP_NUM_THREADS="1", MKL_NUM_THREADS="1")
    if any(name.partition("@")[0] == pins.CLOCK for name in names):
        held = held.with_watch(clock_tick=suspect.tick)
    if pins.NATIVE_ENTROPY in names:
        held = native_entropy.held(held)
    if pins.MEMORY in names:
        held = memory(held, False)
    if pins.FOLDER in names:
        held = replace(held, copied=True, without=suspect.without)
    if pins.ADDRESSES in names:
        held = replace(held, prefix=(*held.prefix, *fixed_layout()))
        held = held.with_environment(PYTHONHASHSEED="1")  # it moves objects too
    return held


def trials(search: Runs, suspect: Suspect, steady: bool = True) -> int:
    """How many pinned runs have to be the same as the first: by how often the program differs.

    A program with threads or processes of its own may differ now and then whatever is suspected.
    """
    least = 3 if by_chance(suspect) or not steady else 1
    if not search.reruns or search.differing >= search.reruns:
        return least
    rate = max(search.differing, 1) / search.reruns
    return max(least, min(MOST_TRIALS, math.ceil(math.log(ERROR) / math.log(1 - rate))))


def by_chance(suspect: Suspect) -> bool:
    """May two runs be the same though nothing was mended? What is decided by comparing two readings of a clock has few
    outcomes, so that two runs easily come to the same one."""
    if pins.NATIVE_ENTROPY in suspect.pins:  # suspected when nothing else is left: what is not watched may be a race
        return True
    return suspect.kind in BY_CHANCE or (is_reading(suspect) and pins.CLOCK in suspect.pins)


def is_reading(suspect: Suspect) -> bool:
    """A mere reading of a clock or of the system's entropy, of which nothing says what becomes of it."""
    return suspect.rank >= READINGS.get(suspect.pins, math.inf)


def limited(suspect: Suspect, listed: Sequence[Suspect]) -> tuple[str, ...]:
    """The suspect's pins, limited to its line where suspects of the same kind stand at other lines."""
    rivals = {(s.file, s.line) for s in listed if s.kind == suspect.kind}
    if len(rivals) < 2:
        return suspect.pins
    return tuple(f"{pin}@{suspect.file}:{suspect.line}" if pin in pins.SEPARABLE else pin for pin in suspect.pins)

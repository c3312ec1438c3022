"""Align two runs and find the first event that differs.

Compared are the values a program computes: operators, draws of torch's generators, what optimizer steps
and ended models hold. Host events (clocks, entropy, listings, ...) are evidence: they may differ freely
as long as no value does. Operators that only one run has (logging by the clock, say) are passed over
when everything around them is the same: they are the difference only when they are followed by one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from samerun.record import format as f
from samerun.record.reader import Trace
from samerun.record.run import Event, RunTraces, events_of, resolve
from samerun.record.scope import ROWS, compared
from samerun.record.streams import Array, Names, ValueStream, value_chunks

RESYNC = 4096
"""So far ahead it is looked whether two runs go on alike."""
RESYNC_RUN = 6
"""So many events in a row must be the same for that."""
SHOWN = 64


@dataclass(frozen=True)
class Difference:
    """The first place where two runs part, in one thread of one process.

    `what`: "outputs" (same operator, same inputs), "inputs", "scalars", "operator" (another one, or one
    run has more), "draw" (a torch generator in another state), "leaf" (a step's parameters, ...),
    "final", "mark" (a point the program named), "rows" (what is computed of samples), "process" (only one run has it).
    """

    what: str
    role: str
    thread: str
    a: Event | None
    b: Event | None
    step: int
    ordinal: int
    """Number of the operator among those of its thread in run A, from 1; 0 where it is no operator."""
    extra_in: str = ""
    """With "operator": the run ("a" or "b") that has events the other lacks."""
    extra: tuple[Event, ...] = ()
    ordinal_b: int = 0

    @property
    def event(self) -> Event | None:
        return self.a or self.b


def first_difference(a: RunTraces, b: RunTraces, scope: tuple[str, ...] = ()) -> Difference | None:
    """The first difference of two runs, or None when every value compared is the same.

    In the main process first, then in the others in the order of their roles. `scope` says what is left
    out: see `samerun.record.scope`.
    """
    roles = sorted(set(a.traces) | set(b.traces), key=lambda role: (role != "main", role))
    roles = [role for role in roles if compared(role, scope)]
    missing = None
    for role in roles:
        one, other = a.traces.get(role), b.traces.get(role)
        if one is None or other is None:
            present = one or other
            assert present is not None
            if missing is None and any((c["kind"] == f.OPERATOR).any() for c in present.chunks()):
                missing = Difference("process", role, "main", None, None, 0, 0, "a" if one else "b")
            continue
        found = compare_traces(one, other, scope)
        if found is not None:
            return found
    return missing


def compare_traces(a: Trace, b: Trace, scope: tuple[str, ...] = ()) -> Difference | None:
    """The first difference of two processes: of all its threads' the earliest."""
    if ROWS in scope:
        return compare_rows(a, b)
    threads_a, threads_b = threads_of(a), threads_of(b)
    names = Names(a, b, scope)
    alone = len(threads_a) == 1 and len(threads_b) == 1
    found: list[Difference] = []
    for role in dict.fromkeys([*threads_a, *threads_b]):
        numbers = threads_a.get(role, []), threads_b.get(role, [])
        if role.rsplit("/", 1)[-1] == f.POOL_THREAD:
            difference = compare_sets(a, b, names, role, numbers)
        else:
            difference = StreamComparison(a, b, names, role, None if alone else numbers).first()
        if difference is not None:
            found.append(difference)
    return min(found, key=lambda d: d.event.index if d.event else 0) if found else None


def threads_of(trace: Trace) -> dict[str, list[int]]:
    """Thread role -> its numbers. Threads of pools share one role."""
    roles: dict[str, list[int]] = {"main": [0]}
    for event in events_of(trace, (f.THREAD,)):
        role = event.name
        head, _, tail = role.rpartition("/")
        if tail.startswith(f.POOL_THREAD):
            role = f"{head}/{f.POOL_THREAD}"
        roles.setdefault(role, []).append(int(event.inputs))
    return roles


def unequal(a: Array, b: Array) -> Array:
    """Mask of the positions where two equally long runs of events differ."""
    operator = a["kind"] == f.OPERATOR
    wrong: Array = (
        (a["kind"] != b["kind"]) | (a["name"] != b["name"]) | (a["place"] != b["place"])
        | (a["inputs"] != b["inputs"]) | (a["out0"] != b["out0"]) | (a["out1"] != b["out1"])
        | (operator & (a["aux"] != b["aux"]))
    )  # fmt: skip
    return wrong


class StreamComparison:
    """Two streams of events, position by position, with what only one of them has passed over."""

    def __init__(
        self, a: Trace, b: Trace, names: Names, role: str, numbers: tuple[list[int], list[int]] | None
    ) -> None:
        self.traces = a, b
        self.role = role
        self.left = ValueStream(a, names, False, numbers[0] if numbers else None)
        self.right = ValueStream(b, names, True, numbers[1] if numbers else None)
        self.operators = [0, 0]
        self.inserted: Difference | None = None
        """The last place where one run alone draws from a torch generator."""

    def first(self) -> Difference | None:
        left, right = self.left, self.right
        while left.fill(1) | right.fill(1):
            size = min(len(left.events), len(right.events))
            wrong = np.flatnonzero(unequal(left.events[:size], right.events[:size]))
            same = int(wrong[0]) if len(wrong) else size
            self._drop(same, same)
            if not len(wrong) and size:
                continue
            left.fill(RESYNC), right.fill(RESYNC)
            if size and same_place(left.events[0], right.events[0]):
                return self._blame(self._value_difference())
            extra_in, count = resync(left.events, right.events, unequal_pair)
            if not count or self._holds_results(extra_in, count):
                return self._other_operator()
            self._pass_over(extra_in, count)
        return None

    def _drop(self, left: int, right: int) -> None:
        for at, stream, count in ((0, self.left, left), (1, self.right, right)):
            self.operators[at] += int((stream.events[:count]["kind"] == f.OPERATOR).sum())
            stream.drop(count)

    def _holds_results(self, extra_in: str, count: int) -> bool:
        """Optimizer steps and ended models are results: what only one run has of them is a difference."""
        kinds = (self.left if extra_in == "a" else self.right).events[:count]["kind"]
        return bool(np.isin(kinds, (f.LEAF, f.FINAL, f.MARK)).any())

    def _pass_over(self, extra_in: str, count: int) -> None:
        extra = (self.left if extra_in == "a" else self.right).events[:count]
        if (extra["kind"] == f.DRAW).any():
            self.inserted = self._other_operator((extra_in, count))
        self._drop(count if extra_in == "a" else 0, count if extra_in == "b" else 0)

    def _blame(self, difference: Difference) -> Difference:
        """A generator in another state after draws that only one run made: they are the difference."""
        a, b = difference.a, difference.b
        if difference.what == "draw" and self.inserted is not None and a and b and a.inputs == b.inputs:
            return self.inserted
        return difference

    def _heads(self) -> tuple[Event | None, Event | None, int]:
        """The two events at hand and the step they belong to."""
        one, other = (
            resolve(trace, int(stream.indices[0]), raw_event(trace, stream.indices[0])) if len(stream.events) else None
            for trace, stream in zip(self.traces, (self.left, self.right), strict=True)
        )
        first = one or other
        assert first is not None
        return one, other, steps_before(self.traces[0] if one else self.traces[1], first.index) + 1

    def _value_difference(self) -> Difference:
        one, other, step = self._heads()
        assert one is not None and other is not None
        ordinals = [n + 1 if one.kind in (f.OPERATOR, f.DRAW) else 0 for n in self.operators]
        return Difference(
            kind_of_difference(one, other), self.traces[0].role, self.role, one, other, step, ordinals[0],
            ordinal_b=ordinals[1],
        )  # fmt: skip

    def _other_operator(self, extra: tuple[str, int] | None = None) -> Difference:
        """One run goes on with something else; `extra`: (run, events) where it is known what it has more."""
        one, other, step = self._heads()
        left, right = self.left, self.right
        extra_in, count = extra or resync(left.events, right.events, other_place)
        trace, stream = (self.traces[0], left) if extra_in == "a" else (self.traces[1], right)
        events = tuple(resolve(trace, int(i), raw_event(trace, i)) for i in stream.indices[: min(count, SHOWN)])
        ordinal = self.operators[0] + 1 if one is not None and one.kind == f.OPERATOR else 0
        return Difference("operator", self.traces[0].role, self.role, one, other, step, ordinal, extra_in, events)


def kind_of_difference(one: Event, other: Event) -> str:
    """What differs between two events of the same kind, name and place."""
    if one.kind == f.DRAW:
        return "draw"
    if one.kind == f.LEAF:
        return "leaf"
    if one.kind == f.FINAL:
        return "final"
    if one.kind == f.MARK:
        return "mark"
    if one.aux != other.aux:
        return "scalars"
    return "inputs" if one.inputs != other.inputs else "outputs"


def same_place(a: Any, b: Any) -> bool:
    return bool((a["kind"], a["name"], a["place"]) == (b["kind"], b["name"], b["place"]))


def unequal_pair(events: Array, one: Any) -> Array:
    """Mask of the events that are not the same as `one`, values included."""
    return unequal(events, np.broadcast_to(np.asarray(one), events.shape))


def other_place(events: Array, one: Any) -> Array:
    """Mask of the events that are another operator, or another line, than `one`."""
    wrong: Array = (events["name"] != one["name"]) | (events["place"] != one["place"])
    return wrong


def resync(a: Array, b: Array, differ: Any) -> tuple[str, int]:
    """Which run has extra events before the two go on alike, and how many; ("", 0) when they do not.

    A run that has ended goes on alike with what is not there: all that the other still has is extra.
    """
    if not len(a) or not len(b):
        return ("b", len(b)) if not len(a) else ("a", len(a))

    def find(short: Array, long: Array) -> int:
        head = min(RESYNC_RUN, len(short))
        places = len(long) - head + 1
        if places <= 1:
            return 0
        same = np.ones(places, dtype=bool)
        for i in range(head):
            same &= ~differ(long[i : i + places], short[i])
        hits = np.flatnonzero(same)
        return int(hits[0]) if len(hits) else 0

    in_b, in_a = find(a, b), find(b, a)
    if in_b and (not in_a or in_b <= in_a):
        return "b", in_b
    return ("a", in_a) if in_a else ("", 0)


def steps_before(trace: Trace, index: int) -> int:
    """Optimizer steps that ended before an event."""
    at = total = 0
    for chunk in trace.chunks():
        if at >= index:
            break
        total += int((chunk[: index - at]["kind"] == f.STEP).sum())
        at += len(chunk)
    return total


def compare_sets(
    a: Trace, b: Trace, names: Names, role: str, numbers: tuple[list[int], list[int]]
) -> Difference | None:
    """Threads of a pool take tasks as they come: their events are compared without their order."""
    (ea, ia), (eb, ib) = (
        gathered(value_chunks(trace, names, translate, threads))
        for trace, translate, threads in ((a, False, numbers[0]), (b, True, numbers[1]))
    )
    keys_a, keys_b = set_keys(ea), set_keys(eb)
    if len(keys_a) == len(keys_b) and np.array_equal(np.sort(keys_a), np.sort(keys_b)):
        return None
    only_a = np.flatnonzero(~np.isin(keys_a, keys_b))
    only_b = np.flatnonzero(~np.isin(keys_b, keys_a))
    one = resolve(a, int(ia[only_a[0]]), raw_event(a, ia[only_a[0]])) if len(only_a) else None
    for i in only_b:
        other = resolve(b, int(ib[i]), raw_event(b, ib[i]))
        if one is None:
            return Difference("operator", a.role, role, None, other, steps_before(b, other.index) + 1, 0, "b")
        if (other.kind, other.name, other.file, other.line) == (one.kind, one.name, one.file, one.line):
            step = steps_before(a, one.index) + 1
            return Difference(kind_of_difference(one, other), a.role, role, one, other, step, 0)
    step = steps_before(a, one.index) + 1 if one is not None else 0
    return Difference("operator", a.role, role, one, None, step, 0, "a")


def compare_rows(a: Trace, b: Trace) -> Difference | None:
    """The first result whose rows differ, of those that both runs have; their passes over the data are counted."""
    left, right = rows_of(a), rows_of(b)
    for key, one in left.items():
        other = right.get(key)
        if other is not None and one.outputs != other.outputs:
            return Difference("rows", a.role, "main", one, other, steps_before(a, one.index) + 1, 0)
    return None


def rows_of(trace: Trace) -> dict[tuple[object, ...], Event]:
    found: dict[tuple[object, ...], Event] = {}
    for event in events_of(trace, (f.ROWS,)):
        found[(event.name, event.file, event.line, event.module, event.inputs)] = event
    return found


def gathered(chunks: Iterator[tuple[Array, Array]]) -> tuple[Array, Array]:
    items = list(chunks)
    return np.concatenate([e for e, _ in items]), np.concatenate([i for _, i in items])


def set_keys(events: Array) -> Array:
    """One number for each event, for comparing sets of them."""
    with np.errstate(over="ignore"):
        key = events["out0"] * np.uint64(0x9E3779B97F4A7C15) ^ events["inputs"]
        key = key * np.uint64(0xBF58476D1CE4E5B9) ^ events["name"].astype(np.uint64)
        key = key * np.uint64(0x94D049BB133111EB) ^ events["place"].astype(np.uint64)
    return np.asarray(key)


def raw_event(trace: Trace, index: Any) -> Any:
    """The record as it stands in the file, with the file's own numbers."""
    at = 0
    for chunk in trace.chunks():
        if index < at + len(chunk):
            return chunk[int(index) - at]
        at += len(chunk)
    raise IndexError(index)


__all__ = ["Difference", "compare_traces", "first_difference"]

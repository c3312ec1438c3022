"""Align two runs and find the first event that differs.

Compared are the values a program computes: operators, draws of torch's generators, what optimizer steps
and ended models hold. Host events (clocks, entropy, listings, ...) are evidence: they may differ freely
as long as no value does. Traces are read in chunks; nothing is held but the chunks at hand.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from samerun.record import format as f
from samerun.record.reader import Trace
from samerun.record.run import Event, RunTraces, events_of, resolve

SOFT_LEAVES = frozenset(("batch", "rng", "rng.numpy", "rng.python"))
RESYNC = 4096
RESYNC_RUN = 4

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Difference:
    """The first place where two runs part, in one thread of one process.

    `what`: "outputs" (same operator, same inputs), "inputs", "scalars", "operator" (another one, or one
    run has more), "draw" (a torch generator in another state), "leaf" (a step's parameters, ...),
    "final", "process" (only one run has it).
    """

    what: str
    role: str
    thread: str
    a: Event | None
    b: Event | None
    step: int
    ordinal: int
    """Number of the operator among those of its thread, from 1; 0 where it is no operator."""
    extra_in: str = ""
    """With "operator": the run ("a" or "b") that has events the other lacks."""
    extra: tuple[Event, ...] = ()

    @property
    def event(self) -> Event | None:
        return self.a or self.b


def first_difference(a: RunTraces, b: RunTraces) -> Difference | None:
    """The first difference of two runs, or None when every value compared is the same.

    In the main process first, then in the others in the order of their roles.
    """
    roles = sorted(set(a.traces) | set(b.traces), key=lambda role: (role != "main", role))
    missing = None
    for role in roles:
        one, other = a.traces.get(role), b.traces.get(role)
        if one is None or other is None:
            present = one or other
            assert present is not None
            if missing is None and any(f.OPERATOR in np.unique(c["kind"]) for c in present.chunks()):
                missing = Difference("process", role, "main", None, None, 0, 0, "a" if one else "b")
            continue
        found = compare_traces(one, other)
        if found is not None:
            return found
    return missing


def compare_traces(a: Trace, b: Trace) -> Difference | None:
    """The first difference of two processes: of all its threads' the earliest."""
    threads_a, threads_b = threads_of(a), threads_of(b)
    names = Names(a, b)
    found: list[Difference] = []
    for role in dict.fromkeys([*threads_a, *threads_b]):
        numbers = threads_a.get(role, []), threads_b.get(role, [])
        alone = len(threads_a) == 1 and len(threads_b) == 1
        if role.rsplit("/", 1)[-1].startswith(f.POOL_THREAD):
            difference = compare_sets(a, b, names, role, numbers)
        else:
            difference = compare_streams(a, b, names, role, None if alone else numbers)
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


class Names:
    """Translate the numbers of run B's strings and places into run A's."""

    def __init__(self, a: Trace, b: Trace) -> None:
        strings = {text: number for number, text in enumerate(a.strings)}
        places = {place: number for number, place in enumerate(a.places)}
        self.strings = np.array(
            [strings.get(text, len(a.strings) + i) for i, text in enumerate(b.strings)], dtype=np.uint32
        )
        self.places = np.array(
            [places.get(place, len(a.places) + i) for i, place in enumerate(b.places)], dtype=np.uint32
        )
        soft = [strings[name] for name in SOFT_LEAVES if name in strings]
        self.soft = np.array(soft, dtype=np.uint32)
        torch_names = [number for text, number in strings.items() if text.startswith("torch")]
        self.torch = np.array(torch_names, dtype=np.uint32)

    def translate(self, chunk: Array) -> Array:
        out = chunk.copy()
        out["name"] = self.strings[np.minimum(chunk["name"], len(self.strings) - 1)]
        out["place"] = self.places[np.minimum(chunk["place"], len(self.places) - 1)]
        return out

    def values(self, chunk: Array) -> Array:
        """Mask of the events that are compared."""
        kind = chunk["kind"]
        mask: Array = (kind == f.OPERATOR) | (kind == f.FINAL)
        leaf = kind == f.LEAF
        if leaf.any():
            mask |= leaf & ~np.isin(chunk["name"], self.soft)
        draw = kind == f.DRAW
        if draw.any():
            mask |= draw & np.isin(chunk["name"], self.torch)
        return mask


def value_chunks(
    trace: Trace, names: Names, translate: bool, threads: list[int] | None
) -> Iterator[tuple[Array, Array]]:
    """(events compared, their indices in the file), chunk by chunk."""
    at = 0
    for chunk in trace.chunks():
        if translate:
            chunk = names.translate(chunk)
        mask = names.values(chunk)
        if threads is not None:
            mask &= np.isin(chunk["thread"], threads)
        where = np.flatnonzero(mask)
        yield chunk[where], where + at
        at += len(chunk)


def unequal(a: Array, b: Array) -> Array:
    """Mask of the positions where two equally long runs of events differ."""
    operator = a["kind"] == f.OPERATOR
    wrong: Array = (
        (a["kind"] != b["kind"]) | (a["name"] != b["name"]) | (a["place"] != b["place"])
        | (a["inputs"] != b["inputs"]) | (a["out0"] != b["out0"]) | (a["out1"] != b["out1"])
        | (operator & (a["aux"] != b["aux"]))
    )  # fmt: skip
    return wrong


def compare_streams(
    a: Trace, b: Trace, names: Names, role: str, numbers: tuple[list[int], list[int]] | None
) -> Difference | None:
    """Position by position."""
    left = value_chunks(a, names, False, numbers[0] if numbers else None)
    right = value_chunks(b, names, True, numbers[1] if numbers else None)
    empty = (np.empty(0, _dtype(a)), np.empty(0, np.int64))
    (ea, ia), (eb, ib) = empty, empty
    done_a = done_b = False
    operators = steps = 0
    while True:
        while not len(ea) and not done_a:
            item = next(left, None)
            done_a = item is None
            ea, ia = item or empty
        while not len(eb) and not done_b:
            item = next(right, None)
            done_b = item is None
            eb, ib = item or empty
        if not len(ea) and not len(eb):
            return None
        size = min(len(ea), len(eb))
        wrong = np.flatnonzero(unequal(ea[:size], eb[:size])) if size else np.empty(0, np.int64)
        at = int(wrong[0]) if len(wrong) else size
        operators += int((ea[:at]["kind"] == f.OPERATOR).sum())
        if len(wrong) or not size:
            ea, ia = _at_least(ea[at:], ia[at:], left)
            eb, ib = _at_least(eb[at:], ib[at:], right)
            steps = _steps_before(a if len(ea) else b, int((ia if len(ea) else ib)[0]))
            return _describe(a, b, role, (ea, ia), (eb, ib), operators, steps)
        ea, ia, eb, ib = ea[size:], ia[size:], eb[size:], ib[size:]


def _dtype(trace: Trace) -> Any:
    from samerun.record.reader import EVENT_DTYPE

    return EVENT_DTYPE


def _at_least(events: Array, indices: Array, more: Iterator[tuple[Array, Array]]) -> tuple[Array, Array]:
    """Enough events behind a difference to see how the runs go on."""
    while len(events) < RESYNC:
        item = next(more, None)
        if item is None:
            break
        events, indices = np.concatenate([events, item[0]]), np.concatenate([indices, item[1]])
    return events[:RESYNC], indices[:RESYNC]


def _steps_before(trace: Trace, index: int) -> int:
    at = total = 0
    for chunk in trace.chunks():
        part = chunk[: max(0, index - at)]
        total += int((part["kind"] == f.STEP).sum())
        at += len(chunk)
        if at >= index:
            break
    return total


def _describe(
    a: Trace, b: Trace, role: str, left: tuple[Array, Array], right: tuple[Array, Array], operators: int, steps: int
) -> Difference:
    (ea, ia), (eb, ib) = left, right
    one = resolve(a, int(ia[0]), _raw(a, ia[0])) if len(ea) else None
    other = resolve(b, int(ib[0]), _raw(b, ib[0])) if len(eb) else None
    first = one or other
    assert first is not None
    ordinal = operators + 1 if first.kind == f.OPERATOR else operators if first.kind == f.DRAW else 0
    process = a.role
    if one is None or other is None or (one.kind, one.name, one.file, one.line) != (
        other.kind, other.name, other.file, other.line,
    ):  # fmt: skip
        extra_in, count = resync(ea, eb)
        source, indices = (a, ia) if extra_in == "a" else (b, ib)
        extra = tuple(resolve(source, int(i), _raw(source, i)) for i in indices[: min(count, 64)])
        return Difference("operator", process, role, one, other, steps + 1, ordinal, extra_in, extra)
    if one.kind == f.DRAW:
        what, ordinal = "draw", operators + 1
    elif one.kind == f.LEAF:
        what = "leaf"
    elif one.kind == f.FINAL:
        what = "final"
    elif one.aux != other.aux:
        what = "scalars"
    elif one.inputs != other.inputs:
        what = "inputs"
    elif one.outputs != other.outputs:
        what = "outputs"
    else:
        what = "operator"  # the module path alone
    return Difference(what, process, role, one, other, steps + 1, ordinal)


def resync(a: Array, b: Array) -> tuple[str, int]:
    """Which run has extra events before the two go on alike, and how many; ("", 0) when they never do."""
    if not len(a):
        return "b", len(b)
    if not len(b):
        return "a", len(a)

    def find(short: Array, long: Array) -> int:
        head = min(RESYNC_RUN, len(short))
        same = np.ones(max(0, len(long) - head + 1), dtype=bool)
        for i in range(head):
            part = long[i : i + len(same)]
            same &= (part["name"] == short[i]["name"]) & (part["place"] == short[i]["place"])
        hits = np.flatnonzero(same)
        return int(hits[0]) if len(hits) else 0

    in_b, in_a = find(a, b), find(b, a)
    if in_b and (not in_a or in_b <= in_a):
        return "b", in_b
    if in_a:
        return "a", in_a
    return "", 0


def compare_sets(
    a: Trace, b: Trace, names: Names, role: str, numbers: tuple[list[int], list[int]]
) -> Difference | None:
    """Threads of a pool take tasks as they come: their events are compared without their order."""
    (ea, ia), (eb, ib) = (
        _all(value_chunks(trace, names, translate, threads))
        for trace, translate, threads in ((a, False, numbers[0]), (b, True, numbers[1]))
    )
    keys_a, keys_b = _keys(ea), _keys(eb)
    if len(keys_a) == len(keys_b) and np.array_equal(np.sort(keys_a), np.sort(keys_b)):
        return None
    only_a = np.flatnonzero(~np.isin(keys_a, keys_b))
    only_b = np.flatnonzero(~np.isin(keys_b, keys_a))
    one = resolve(a, int(ia[only_a[0]]), _raw(a, ia[only_a[0]])) if len(only_a) else None
    other = None
    for i in only_b:
        event = resolve(b, int(ib[i]), _raw(b, ib[i]))
        if one is None or (event.name, event.file, event.line) == (one.name, one.file, one.line):
            other = event
            break
    first = one or other
    if first is None:
        return Difference("operator", a.role, role, None, None, 0, 0)
    steps = _steps_before(a if one else b, first.index)
    if one is None or other is None:
        what = "operator"
    elif one.kind == f.DRAW:
        what = "draw"
    elif one.aux != other.aux:
        what = "scalars"
    else:
        what = "inputs" if one.inputs != other.inputs else "outputs"
    return Difference(what, a.role, role, one, other, steps + 1, 0)


def _all(chunks: Iterator[tuple[Array, Array]]) -> tuple[Array, Array]:
    items = list(chunks)
    return np.concatenate([e for e, _ in items]), np.concatenate([i for _, i in items])


def _keys(events: Array) -> Array:
    """One number for each event, for comparing sets of them."""
    with np.errstate(over="ignore"):
        key = events["out0"] * np.uint64(0x9E3779B97F4A7C15) ^ events["inputs"]
        key = key * np.uint64(0xBF58476D1CE4E5B9) ^ events["name"].astype(np.uint64)
        key = key * np.uint64(0x94D049BB133111EB) ^ events["place"].astype(np.uint64)
    return np.asarray(key)


def _raw(trace: Trace, index: Any) -> Any:
    """The record as it stands in the file, with the file's own numbers."""
    at = 0
    for chunk in trace.chunks():
        if index < at + len(chunk):
            return chunk[int(index) - at]
        at += len(chunk)
    raise IndexError(index)

"""The numbers that a run wrote down (samerun.record.watching.run_numbers), read without trusting the file."""

from __future__ import annotations

import json
import re
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from samerun.record.comparison.rounding import ItemKey
from samerun.record.config import numbers_file_name
from samerun.record.trace import format as f
from samerun.record.trace.reader import SourceLocation, Trace
from samerun.record.trace.run import RunTraces, read_optimizer_steps, select_events

Array = np.ndarray[Any, Any]
OF_RANKS = re.compile(r"_?c10d|fsdp")
"""Operators of other ranks' values: some of what they give nobody may have written, or it arrives later."""


@dataclass(frozen=True)
class NumberRecord:
    """What one step, or one call of a model without gradients, left behind. `dtypes`: as the program has them."""

    head: dict[str, Any]
    values: dict[ItemKey, Array]
    dtypes: dict[ItemKey, str]
    shares: frozenset[ItemKey] = frozenset()
    """Of what is sharded only the share of one rank is here."""

    @property
    def number(self) -> int:
        return int(self.head["number"])

    def find_line_counted_here_only(self, other: NumberRecord, counted: str) -> tuple[str, int] | None:
        """The first line at which this side did what is counted under a name, and the other side did not."""
        lines, others = (record.head.get("lines", {}).get(counted, {}) for record in (self, other))
        return next((parse_source_line(where) for where in lines if where not in others), None)

    def list_gradients_of_other_only(self, other: NumberRecord) -> list[str]:
        """The parameters that have a gradient on the other side and none here."""
        return [key[1] for key in other.values if key[0] == "gradient" and key not in self.values]


def parse_source_line(text: str) -> tuple[str, int]:
    """File and line of `file:line`, as records hold it; line 0 where none is known."""
    file, _, line = text.rpartition(":")
    return file, int(line or 0)


@dataclass(frozen=True)
class OperatorSummary:
    """One operator of a step.

    `sources`: the operators that made its operands (-1: none of this step), each with the number of its result.
    `results`: for each dtype, shape, and count, sum, sum of magnitudes, of squares, weighted sum.
    """

    name: str
    phase: int
    location: SourceLocation
    sources: tuple[tuple[int, int], ...]
    results: tuple[tuple[str, tuple[int, ...], Array], ...]
    draws_from: str = "none"
    """A generator: "none", "default generator" or "own generator" (one that the program made)."""
    callers: tuple[tuple[str, int], ...] = ()
    """File and line of the calls that led to `location`, the nearest first; of a backward pass none."""
    is_recomputed: bool = False
    """A forward pass that is run again inside of a backward pass."""
    differentiated_at: tuple[tuple[str, int], ...] = ()
    """Of a backward pass: file and line of the call that asked for it."""
    attached: tuple[tuple[int, int], ...] = ()
    """Operands that require gradients, where gradients are recorded; as `sources`."""
    detached: tuple[tuple[int, int, tuple[tuple[str, int], ...]], ...] = ()
    """Operands that do not, where gradients are recorded; with the line that detached them, if there is one."""

    @property
    def is_random(self) -> bool:
        return self.draws_from != "none"

    def behind(self, count: int) -> OperatorSummary:
        """This operator where its list follows `count` others: what it names by number is moved by as many."""
        sources, attached = (
            tuple((at + count if at >= 0 else at, number) for at, number in each)
            for each in (self.sources, self.attached)
        )
        detached = tuple((at + count if at >= 0 else at, number, lines) for at, number, lines in self.detached)
        return replace(self, sources=sources, attached=attached, detached=detached)


@dataclass
class RunNumbers:
    """The numbers of the main process, or of rank 0 with what other ranks hold of sharded values."""

    steps: dict[int, NumberRecord] = field(default_factory=dict)
    calls: dict[int, NumberRecord] = field(default_factory=dict)
    operators: dict[int, list[OperatorSummary]] = field(default_factory=dict)
    uses: dict[str, int] = field(default_factory=dict)
    rank_operators: dict[int, list[OperatorSummary]] = field(default_factory=dict)
    """The operators of all ranks, one rank after the other, as if one process had called them."""
    narrow: dict[str, int] = field(default_factory=dict)
    """Of a run in float64: operators that computed in single precision after all."""
    models: dict[str, list[str]] = field(default_factory=dict)
    """By class, sorted digests of what each called model holds at the end, whatever names it has there."""
    seeding_lines: dict[int, list[tuple[str, int]]] = field(default_factory=dict)
    """By step, file and line of each call that gave a generator another state."""


def read_run_numbers(folder: Path, traces: RunTraces) -> RunNumbers:
    """What the run in a folder wrote down; a file that was cut off is read as far as it goes."""
    roles = traces.list_rank_roles() or ["main"]
    roles = [role for role in roles if (folder / numbers_file_name(role)).is_file()]
    if not roles:
        return RunNumbers()
    found, *ranks = (_read_numbers_of_process(folder, role, traces) for role in roles)
    for records, others_records in ((found.steps, [r.steps for r in ranks]), (found.calls, [r.calls for r in ranks])):
        for number, record in records.items():
            if record.shares:
                records[number] = _add_shares(record, [each.get(number) for each in others_records])
    for number, operators in found.operators.items():
        found.rank_operators[number] = list(operators)
        for rank in ranks:
            first = len(found.rank_operators[number])
            found.rank_operators[number] += [each.behind(first) for each in rank.operators.get(number, [])]
    return found


def _add_shares(record: NumberRecord, records_of_other_ranks: list[NumberRecord | None]) -> NumberRecord:
    """The record with whole values; without those of which a rank wrote no share."""
    values, dtypes = dict(record.values), dict(record.dtypes)
    for key in record.shares:
        shares = [other.values[key] for other in records_of_other_ranks if other is not None and key in other.values]
        if len(shares) == len(records_of_other_ranks) and all(len(each) == len(values[key]) for each in shares):
            values[key] = np.sum([values[key], *shares], axis=0)
        else:
            del values[key], dtypes[key]
    return replace(record, values=values, dtypes=dtypes, shares=frozenset())


def _read_numbers_of_process(folder: Path, role: str, traces: RunTraces) -> RunNumbers:
    """What one process wrote down."""
    trace = traces.traces.get(role)
    found = RunNumbers(seeding_lines={} if trace is None else _read_seeding_lines(trace))
    for head, data in _iterate_records_until_damage(folder / numbers_file_name(role)):
        if head["kind"] == "operators":
            stacks = [tuple((str(file), int(line)) for file, line in stack) for stack in head["stacks"]]
            found.operators[head["number"]] = [
                OperatorSummary(
                    name, phase, trace.location_or_empty(location) if trace is not None else SourceLocation("", 0, ""),
                    tuple((at, number) for at, number in sources), results, str(random), stacks[stack], recomputed,
                    stacks[asked_at], tuple((at, number) for at, number in attached),
                    tuple(
                        (at, number, tuple((file, line) for file, line in lines)) for (at, number), lines in detached
                    ),
                )
                for (
                    name, phase, location, sources, _, random, stack, recomputed, asked_at, attached, detached
                ), results in zip(
                    head["operators"], _iterate_result_sums_by_operator(head["operators"], data), strict=True
                )
            ]  # fmt: skip
        elif head["kind"] == "end":
            found.uses, found.narrow, found.models = head["uses"], head["narrow"], head["models"]
        else:
            values, dtypes, shares, begin = {}, {}, set(), 0
            for at, (kind, name, dtype, count) in enumerate(head["items"]):
                values[kind, name], dtypes[kind, name] = data[begin : begin + count], dtype
                begin += count
                if at in head["shares"]:
                    shares.add((kind, name))
            record = NumberRecord(head, values, dtypes, frozenset(shares))
            (found.steps if head["kind"] == "step" else found.calls)[record.number] = record
    return found


def _read_seeding_lines(trace: Trace) -> dict[int, list[tuple[str, int]]]:
    steps = read_optimizer_steps(trace)
    ends = [step.end for step in steps]
    lines: dict[int, list[tuple[str, int]]] = defaultdict(list)
    for event in select_events(trace, (f.SEED,)):
        at = bisect_left(ends, event.index)
        if at < len(steps) and event.line:
            lines[steps[at].number].append((event.file, event.line))
    return lines


def _iterate_result_sums_by_operator(
    operators: list[Any], data: Array
) -> Iterator[tuple[tuple[str, tuple[int, ...], Array], ...]]:
    at = 0
    for _, _, _, _, shapes, *_ in operators:
        yield tuple((dtype, tuple(shape), data[at + 5 * i : at + 5 * i + 5]) for i, (dtype, shape) in enumerate(shapes))
        at += 5 * len(shapes)


def _iterate_records_until_damage(path: Path) -> Iterator[tuple[dict[str, Any], Array]]:
    with open(path, "rb") as file:
        while line := file.readline():
            try:
                head = json.loads(line)
                data = file.read(head["bytes"])
            except (ValueError, KeyError):
                return
            if len(data) == head["bytes"]:
                yield head, np.frombuffer(data, np.float64)


def find_caller_of_one_side(
    operator: OperatorSummary, these: list[OperatorSummary], others: list[OperatorSummary]
) -> tuple[str, int] | None:
    """The nearest call that led to an operator at a line of both sides and that the other side never makes; or None.

    A call that leads to the optimizer's step as well is none: the whole training is called from another line. To what
    is recomputed led the calls of its forward pass too, of which one is that which recomputes it.
    """
    forward = (o for o in these if (o.name, o.location, o.phase) == (operator.name, operator.location, f.FORWARD))
    first_run = next(forward, operator) if operator.is_recomputed else operator
    lines = {(o.location.file, o.location.line) for o in others}
    if (operator.location.file, operator.location.line) not in lines:
        return None
    lines.update(caller for o in others for caller in o.callers)
    lines.update(caller for o in these if o.phase == f.OPTIMIZER for caller in o.callers)
    return next((caller for caller in (*operator.callers, *first_run.callers) if caller not in lines), None)

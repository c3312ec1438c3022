"""The numbers that a run wrote down (samerun.record.watching.step_numbers), read without trusting the file."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from samerun.record.comparison.rounding import ItemKey
from samerun.record.trace.reader import SourceLocation
from samerun.record.trace.run import RunTraces

Array = np.ndarray[Any, Any]
ROLES = ("rank0", "main")
"""Where there are ranks, the main process is a launcher."""


@dataclass(frozen=True)
class NumberRecord:
    """What one step, or one call of a model without gradients, left behind. `dtypes`: as the program has them."""

    head: dict[str, Any]
    values: dict[ItemKey, Array]
    dtypes: dict[ItemKey, str]

    @property
    def number(self) -> int:
        return int(self.head["number"])


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
    is_random: bool


@dataclass
class RunNumbers:
    """The numbers of the main process, or of rank 0."""

    steps: dict[int, NumberRecord] = field(default_factory=dict)
    calls: dict[int, NumberRecord] = field(default_factory=dict)
    operators: dict[int, list[OperatorSummary]] = field(default_factory=dict)
    uses: dict[str, int] = field(default_factory=dict)
    narrow: dict[str, int] = field(default_factory=dict)
    """Of a run in float64: operators that computed in single precision after all."""


def read_run_numbers(folder: Path, traces: RunTraces) -> RunNumbers:
    """What the run in a folder wrote down; a file that was cut off is read as far as it goes."""
    found = RunNumbers()
    role = next((role for role in ROLES if (folder / f"{role}.numbers").is_file()), None)
    if role is None:
        return found
    trace = traces.traces.get(role)
    for head, data in _iterate_records(folder / f"{role}.numbers"):
        if head["kind"] == "operators":
            found.operators[head["number"]] = [
                OperatorSummary(
                    name, phase, trace.location_or_empty(location) if trace is not None else SourceLocation("", 0, ""),
                    tuple((at, number) for at, number in sources), results, bool(random),
                )
                for (name, phase, location, sources, _, random), results in zip(
                    head["operators"], _split_results(head["operators"], data), strict=True
                )
            ]  # fmt: skip
        elif head["kind"] == "end":
            found.uses, found.narrow = head["uses"], head["narrow"]
        else:
            values, dtypes, at = {}, {}, 0
            for kind, name, dtype, count in head["items"]:
                values[kind, name], dtypes[kind, name] = data[at : at + count], dtype
                at += count
            record = NumberRecord(head, values, dtypes)
            (found.steps if head["kind"] == "step" else found.calls)[record.number] = record
    return found


def _split_results(operators: list[Any], data: Array) -> Iterator[tuple[tuple[str, tuple[int, ...], Array], ...]]:
    at = 0
    for _, _, _, _, shapes, _ in operators:
        yield tuple((dtype, tuple(shape), data[at + 5 * i : at + 5 * i + 5]) for i, (dtype, shape) in enumerate(shapes))
        at += 5 * len(shapes)


def _iterate_records(path: Path) -> Iterator[tuple[dict[str, Any], Array]]:
    with open(path, "rb") as file:
        while line := file.readline():
            try:
                head = json.loads(line)
                data = file.read(head["bytes"])
            except (ValueError, KeyError):
                return
            if len(data) == head["bytes"]:
                yield head, np.frombuffer(data, np.float64)

"""What an examination of batch invariance says. Imports nothing heavy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final, Literal

ExperimentOutcome = Literal["same", "different", "not tried"]
DependenceKind = Literal[
    "rounding", "lower precision", "other rows", "random numbers", "padding", "another way", "unknown"
]
SAME: Final = "same"
DIFFERENT: Final = "different"
NOT_TRIED: Final = "not tried"

MEANINGS: dict[DependenceKind, str] = {
    "rounding": "its order of summation depends on the shape",
    "lower precision": "it computes less exactly in one of the batches",
    "other rows": "other rows count in its result",
    "random numbers": "it draws other numbers for the row",
    "padding": "padded places count in its result",
    "another way": "the program calls other operators",
    "unknown": "other values from the same inputs",
}


@dataclass(frozen=True)
class BatchExperiment:
    """One thing varied. `detail`: with which values, and which of them gave the same."""

    name: Literal["size", "position", "contents", "padding"]
    outcome: ExperimentOutcome
    detail: str


@dataclass(frozen=True, kw_only=True)
class BatchDependence:
    """An operator that gives other values for a sample in another batch.

    `shows_under`: names of the experiments. `between`: two batches that show it. `confirmed`: with this operator's
    values held, and not without, the sample's results are the same. `other_operator`: what the program calls instead,
    where it goes another way. `largest_difference`: None where it is infinite.
    """

    operator: str
    file: str
    line: int
    module: str
    kind: DependenceKind
    shows_under: tuple[str, ...]
    between: str
    largest_difference: float | None
    calls: int
    confirmed: bool
    other_operator: str = ""
    other_line: int = 0

    @property
    def location(self) -> str:
        return f"{self.file}:{self.line}" if self.line else "no line of Python"

    def describe_kind_and_difference(self) -> str:
        """Why, in words."""
        most = "infinite" if self.largest_difference is None else f"{self.largest_difference:.2g}"
        text = f"{self.kind}: {MEANINGS[self.kind]} ({self.between}), largest difference {most}"
        if self.other_operator:
            text += (
                f"; the other batch goes through {self.other_operator.removeprefix('aten.')} at line {self.other_line}"
            )
        return text if self.confirmed else f"suspected. {text}"


@dataclass(frozen=True)
class BatchInvarianceReport:
    """The answer of `samerun.batch_invariant`: true if every experiment gave the same bits. Print it for a table."""

    experiments: tuple[BatchExperiment, ...]
    dependences: tuple[BatchDependence, ...]
    notes: tuple[str, ...] = ()

    @property
    def invariant(self) -> bool:
        """Whether the sample's results had the same bits in every experiment."""
        return all(one.outcome != DIFFERENT for one in self.experiments)

    def __bool__(self) -> bool:
        return self.invariant

    def __str__(self) -> str:
        tried = [one for one in self.experiments if one.outcome != NOT_TRIED]
        head = (
            f"SAME       a sample's results do not depend on its batch ({', '.join(one.name for one in tried)})"
            if self.invariant
            else "DIFFERENT  a sample's results depend on its batch"
        )
        rows = [(f"  {one.name}", one.outcome, one.detail) for one in self.experiments]
        lines = [head, "", *_align(rows)]
        if self.dependences:
            table = [("  operator", "line", "module", "calls", "shows under")]
            table += [
                (f"  {one.operator.removeprefix('aten.')}", one.location, one.module or "-", str(one.calls),
                 ", ".join(one.shows_under))
                for one in self.dependences
            ]  # fmt: skip
            shown = _align(table)
            lines += ["", shown[0]]
            for row, one in zip(shown[1:], self.dependences, strict=True):
                lines += [row, f"      {one.describe_kind_and_difference()}"]
        return "\n".join([*lines, *(["", *self.notes] if self.notes else [])])

    def to_dict(self) -> dict[str, Any]:
        """For JSON; keys are only ever added."""
        return {"schema": 1, "verdict": SAME if self.invariant else DIFFERENT, **asdict(self)}


def _align(rows: Sequence[tuple[str, ...]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]

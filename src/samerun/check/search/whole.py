"""A run with some things varied, and which of several such runs a difference is put down to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from samerun.check.execution.runner import Run
from samerun.check.plan import Variation
from samerun.record.comparison.compare import Difference


@dataclass(frozen=True)
class Whole:
    """A run with some things varied, and its first difference from the control run."""

    group: tuple[Variation, ...]
    run: Run
    difference: Difference | None


def likeliest(singles: Sequence[Whole]) -> Whole:
    """The variation that a difference is put down to, where several make one.

    Another hash seed or environment moves objects in memory too; only addresses depend on the layout.
    """
    by_address = [single for single in singles if single.group[0].cause == "object-id"]
    return (by_address or list(singles))[0]

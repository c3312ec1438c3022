"""What each operator of a step made of what, as sums over its results. Imports torch."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch

from samerun.record.digests.digest import is_readable
from samerun.record.digests.torch_guards import HiddenFromProgram
from samerun.record.watching.run_numbers.float64_mode import Draw
from samerun.record.watching.run_numbers.tensor_numbers import summarise_as_count_and_four_sums
from samerun.record.watching.run_numbers.value_producers import ValueProducers, move_producer
from samerun.record.watching.stack_frames import OperatorSite

SUMS = 5
"""How many numbers there are of each result."""


MOST_DENSE = 1 << 24
"""Sparse tensors with more elements, zeros among them, are left out: they would not fit into memory as dense ones."""


class SummaryRow(NamedTuple):
    """One operator, as records hold it. Operands are given by the operators that made them (see Producer)."""

    name: str
    phase: int
    location_id: int
    sources: list[tuple[int, int]]
    shapes: list[list[Any]]
    """Of each result its dtype and shape."""
    drew: Draw
    callers: int
    """Number of the stack of calls that led here."""
    is_recomputed: bool
    differentiated_at: int
    attached: list[tuple[int, int]]
    detached: list[Any]

    def behind_cut(self, cut: int) -> SummaryRow:
        """The row where the first operators of its list are cut off."""
        return self._replace(
            sources=sorted({move_producer(each, cut) for each in self.sources}),
            attached=[move_producer(each, cut) for each in self.attached if each[0] >= cut],
            detached=[each._replace(producer=move_producer(each.producer, cut))
                      for each in self.detached if each.producer[0] >= cut],
        )  # fmt: skip


class OperatorSummaries:
    """The operators of the step that is under way."""

    def __init__(self) -> None:
        self.rows: list[SummaryRow] = []
        self.producers = ValueProducers()
        self._numbers: list[float] = []
        self._stacks: dict[Any, int] = {}
        """Lines of the program that called those of operators, the nearest first, each stack with its number."""

    def add(
        self, name: str, site: OperatorSite, operands: list[Any], results: list[Any], drew: Draw, is_view: bool = False
    ) -> None:
        at = len(self.rows)
        sources = {self.producers.find(t) for t in operands}
        attached, detached = self.producers.find_attached_and_detached(operands)
        shapes: list[list[Any]] = []
        for tensor in results:
            with HiddenFromProgram():
                # A sparse one stands for the dense one in which what it says twice of an element is added up.
                is_sparse = is_small_sparse_coo(tensor)
                if not is_sparse and not is_readable(tensor):
                    continue
                self._numbers += summarise_as_count_and_four_sums(tensor.detach().to_dense() if is_sparse else tensor)
                self.producers.note(tensor._values() if is_sparse else tensor, (at, len(shapes)), is_view)
            shapes.append([str(tensor.dtype).removeprefix("torch."), list(tensor.shape)])
        stacks = site.callers, site.differentiated_at
        callers, asked_at = (self._stacks.setdefault(stack, len(self._stacks)) for stack in stacks)
        self.rows.append(
            SummaryRow(name, site.phase, site.location_id, sorted(sources), shapes, drew, callers, site.is_recomputed,
                       asked_at, attached, detached)
        )  # fmt: skip

    def is_result_of_collective(self, tensor: Any) -> bool:
        """Whether a collective of ranks wrote into its memory last: gloo copies what it received there, from memory of
        its own, and so the collective is what made it.
        """
        at, _ = self.producers.find(tensor)
        return at >= 0 and self.rows[at].name.startswith(("c10d.", "_c10d_functional."))

    def count_up_to_writing(self, tensors: list[torch.Tensor]) -> int:
        """How many operators there are up to the last that made what one of these holds; all if none is known."""
        last = max((self.producers.find(t)[0] for t in tensors), default=-1)
        return last + 1 or len(self.rows)

    def take(self, count: int) -> tuple[dict[str, Any], list[float]]:
        """Take out the first operators: what a record says of them, and the sums of their results."""
        rows, numbers = self.rows[:count], SUMS * sum(len(row.shapes) for row in self.rows[:count])
        taken = {"operators": rows, "stacks": list(self._stacks)}, self._numbers[:numbers]
        self.rows = [row.behind_cut(count) for row in self.rows[count:]]
        self._numbers = self._numbers[numbers:]
        self.producers.cut_off(count)
        if not self.rows:
            self._stacks = {}
        return taken


def is_small_sparse_coo(tensor: Any) -> bool:
    """Whether it is a plain sparse tensor that holds real values and may be made dense."""
    return (
        type(tensor) is torch.Tensor
        and tensor.layout is torch.sparse_coo
        and tensor.device.type != "meta"
        and tensor.numel() <= MOST_DENSE
    )

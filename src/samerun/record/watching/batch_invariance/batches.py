"""Batches of other sizes, orders, contents and lengths, made of the rows that a program gives. Imports torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch.utils import _pytree

from samerun.base.errors import SamerunError

Tensor = torch.Tensor
Arguments = tuple[tuple[Any, ...], dict[str, Any]]


@dataclass(frozen=True)
class Row:
    """One row of a batch: a row of the inputs, by its number, as it is or with other values."""

    source: int
    is_altered: bool = False


@dataclass(frozen=True)
class Padding:
    """`length` more places of a sequence, which a mask takes out again. `fill`: what stands in them."""

    length: int = 0
    fill: Literal["zeros", "large"] = "zeros"


@dataclass(frozen=True)
class Composition:
    """A batch, and where in it the sample stands that is looked at."""

    rows: tuple[Row, ...]
    position: int = 0
    padding: Padding = Padding()

    @property
    def size(self) -> int:
        return len(self.rows)


def compose_cycled(size: int, sample_row: int, row_count: int, position: int = 0) -> Composition:
    """`size` rows of the inputs in turn, such that `sample_row` stands at `position`."""
    return Composition(tuple(Row((sample_row + at - position) % row_count) for at in range(size)), position)


MASK_NAMES = ("attention_mask", "src_key_padding_mask", "key_padding_mask", "padding_mask", "mask")
"""Keywords of inputs that say where a sequence ends. True is padding in those that say so in their name."""


class BatchInputs:
    """The inputs of a program, taken apart into rows.

    Raises SamerunError where they hold no tensor with a dimension for the batch, or tensors in other objects.
    """

    def __init__(self, arguments: Arguments) -> None:
        self.leaves, self._spec = _pytree.tree_flatten(arguments)
        first = next((leaf for leaf in self.leaves if isinstance(leaf, Tensor) and leaf.ndim), None)
        if first is None or not first.shape[0]:
            raise SamerunError(
                "batch_invariant(inputs=...): there is no tensor with rows in it.", "batch_invariant(model, x)"
            )
        self.row_count = first.shape[0]
        self.is_batched = [
            isinstance(leaf, Tensor) and leaf.ndim > 0 and leaf.shape[0] == self.row_count for leaf in self.leaves
        ]
        self.mask_name = next((name for name in MASK_NAMES if isinstance(arguments[1].get(name), Tensor)), None)
        mask = arguments[1].get(self.mask_name) if self.mask_name else None
        self.mask_at = next((at for at, leaf in enumerate(self.leaves) if leaf is mask), -1) if mask is not None else -1
        if mask is not None and (mask.ndim != 2 or mask.shape[0] != self.row_count):
            self.mask_name, self.mask_at = None, -1

    @property
    def _mask_is_true_at_padding(self) -> bool:
        return self.mask_name is not None and "padding" in self.mask_name

    def pads_left(self) -> bool:
        """Whether the inputs have their padding on the left, as generation has."""
        if self.mask_at < 0:
            return False
        kept = self.leaves[self.mask_at].bool() ^ self._mask_is_true_at_padding
        return bool((~kept[:, 0]).any()) and not bool((~kept[:, -1]).any())

    def make(self, composition: Composition) -> Arguments:
        """The arguments of the program for this batch: new tensors."""
        index = torch.tensor([row.source for row in composition.rows])
        altered = torch.tensor([row.is_altered for row in composition.rows])
        length = self.leaves[self.mask_at].shape[1] if self.mask_at >= 0 else -1
        leaves = []
        for at, leaf in enumerate(self.leaves):
            if not isinstance(leaf, Tensor):
                leaves.append(leaf)
                continue
            if not self.is_batched[at]:
                leaves.append(leaf.detach().clone())
                continue
            rows = leaf.detach().index_select(0, index.to(leaf.device))
            if altered.any() and at != self.mask_at:
                rows[altered.to(leaf.device)] = _alter_values_unless_bool(rows[altered.to(leaf.device)])
            if composition.padding.length and rows.ndim > 1 and rows.shape[1] == length:
                rows = self._add_padding_places(rows, composition.padding, at == self.mask_at)
            leaves.append(rows)
        made: Arguments = _pytree.tree_unflatten(leaves, self._spec)
        return made

    def _add_padding_places(self, rows: Tensor, padding: Padding, is_mask: bool) -> Tensor:
        side = rows.new_zeros((rows.shape[0], padding.length, *rows.shape[2:]))
        if is_mask:
            side.fill_(self._mask_is_true_at_padding)
        elif padding.fill == "large" and rows.dtype is not torch.bool:
            side.copy_(rows[:, :1].expand_as(side) if not rows.is_floating_point() else torch.full_like(side, 999.0))
        return torch.cat([side, rows] if self.pads_left() else [rows, side], 1)


def _alter_values_unless_bool(rows: Tensor) -> Tensor:
    """Other values of the same kind: larger ones of the other sign, or those of the row in another order."""
    if rows.is_floating_point() or rows.is_complex():
        return rows * -4
    if rows.dtype is torch.bool:
        return rows
    return rows.reshape(rows.shape[0], -1).roll(1, 1).reshape(rows.shape)

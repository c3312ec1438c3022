"""A sample's part of a tensor, whichever batch the tensor was computed for. Imports torch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch

from samerun.record.watching.batch_invariance.batches import Composition

Tensor = torch.Tensor
Shape = tuple[int, ...]


@dataclass(frozen=True)
class BatchDimension:
    """A dimension whose size is `factor` times the number of rows."""

    dim: int
    factor: int


SampleDims = tuple[BatchDimension, ...]


def find_batch_dims(shape: Shape, other_shape: Shape, row_count: int, other_row_count: int) -> SampleDims | None:
    """The dimensions that grow with the batch: () if none does, None if a size changes in another way."""
    if len(shape) != len(other_shape):
        return None
    dims = []
    for dim, (mine, theirs) in enumerate(zip(shape, other_shape, strict=True)):
        if mine == theirs:
            continue
        factor = mine // row_count
        if not factor or factor * row_count != mine or factor * other_row_count != theirs:
            return None
        dims.append(BatchDimension(dim, factor))
    return tuple(dims)


def view_sample_as_block_and_interleaved(tensor: Tensor, dims: SampleDims, composition: Composition) -> list[Tensor]:
    """Views of what may be the sample's: a block of rows; and, of dimensions with several for each sample, in turns."""
    blocks = tensor
    for one in dims:
        blocks = blocks.narrow(one.dim, composition.position * one.factor, one.factor)
    if all(one.factor == 1 for one in dims):
        return [blocks]
    turns = tensor
    for one in dims:
        index = torch.arange(composition.position, composition.size * one.factor, composition.size)
        # as a view, so that values can be written back
        turns = turns.as_strided(
            [len(index) if at == one.dim else size for at, size in enumerate(turns.shape)],
            [stride * composition.size if at == one.dim else stride for at, stride in enumerate(turns.stride())],
            turns.storage_offset() + composition.position * turns.stride(one.dim),
        )
    return [blocks, turns]


def take_longer_part(tensor: Tensor, shape: Sequence[int], from_end: bool) -> Tensor | None:
    """The first (or last) places of a tensor, as many as `shape` has in each dimension; None where it has fewer."""
    if tensor.ndim != len(shape):
        return None
    for dim, size in enumerate(shape):
        if tensor.shape[dim] < size:
            return None
        tensor = tensor.narrow(dim, tensor.shape[dim] - size if from_end else 0, size)
    return tensor


def have_same_bits_or_both_nan(a: Tensor, b: Tensor) -> bool:
    """Whether type, shape and bits are the same; a NaN is the same as any other."""
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    if a.is_complex():
        a, b = torch.view_as_real(a.resolve_conj()), torch.view_as_real(b.resolve_conj())
    if not a.is_floating_point():
        return torch.equal(a, b)
    same = (a == b) & (torch.signbit(a) == torch.signbit(b)) | a.isnan() & b.isnan()
    return bool(same.all())


def largest_difference(a: Tensor, b: Tensor) -> float:
    """The largest difference of two tensors; infinite where only one is a number or they have other shapes."""
    if a.shape != b.shape:
        return float("inf")
    if not a.numel():
        return 0.0
    wide = torch.complex128 if a.is_complex() else torch.float64
    x, y = a.detach().cpu().to(wide), b.detach().cpu().to(wide)
    apart = torch.where((x == y) | x.isnan() & y.isnan(), torch.zeros((), dtype=torch.float64), (x - y).abs())
    return float(apart.nan_to_num(nan=float("inf")).max())


class SampleWindow(Protocol):
    """Finds the sample in the tensors of two runs, A and B."""

    def find_dims(self, shape: Shape, probe_shape: Shape) -> SampleDims | None:
        """What `take` needs to know of a tensor of run A, from its shape in A and in the run that probes shapes."""

    def correspond(self, shape_in_a: Shape, shape_in_b: Shape) -> bool:
        """Whether two tensors of the runs A and B are equally large but for the batch."""

    def view_candidate_sample_parts_if_shape_fits(
        self, tensor: Tensor, dims: SampleDims, shape_in_a: Shape, is_b: bool
    ) -> list[Tensor]:
        """Views of what may be the sample's, of a tensor of run A or B; none if there are none."""


@dataclass(frozen=True)
class BatchWindow:
    """The sample in two batches. `probe_size`: rows in the run that probes shapes."""

    a: Composition
    b: Composition
    probe_size: int

    def find_dims(self, shape: Shape, probe_shape: Shape) -> SampleDims | None:
        return find_batch_dims(shape, probe_shape, self.a.size, self.probe_size)

    def correspond(self, shape_in_a: Shape, shape_in_b: Shape) -> bool:
        return find_batch_dims(shape_in_a, shape_in_b, self.a.size, self.b.size) is not None

    def view_candidate_sample_parts_if_shape_fits(
        self, tensor: Tensor, dims: SampleDims, shape_in_a: Shape, is_b: bool
    ) -> list[Tensor]:
        composition = self.b if is_b else self.a
        expected = list(shape_in_a)
        for one in dims:
            expected[one.dim] = one.factor * composition.size
        return view_sample_as_block_and_interleaved(tensor, dims, composition) if list(tensor.shape) == expected else []


@dataclass(frozen=True)
class LengthWindow:
    """The real places of a sequence that is padded in run B."""

    from_end: bool

    def find_dims(self, shape: Shape, probe_shape: Shape) -> SampleDims | None:
        return ()

    def correspond(self, shape_in_a: Shape, shape_in_b: Shape) -> bool:
        return len(shape_in_a) == len(shape_in_b) and all(m <= n for m, n in zip(shape_in_a, shape_in_b, strict=True))

    def view_candidate_sample_parts_if_shape_fits(
        self, tensor: Tensor, dims: SampleDims, shape_in_a: Shape, is_b: bool
    ) -> list[Tensor]:
        part = take_longer_part(tensor, shape_in_a, self.from_end)
        return [] if part is None else [part]

"""The gradients of the reflection and replication padding layers."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from samerun.control.deterministic_kernels.declare import DeterministicOperator, Kernel, upcast_half_to_float32


def _crop_padding(gradient: Tensor, dim: int, num_inputs: int, before: int, after: int) -> Tensor:
    """A new tensor with `num_inputs` cells along `dim`: those of `gradient` without its edges, 0 where it was cropped.

    before, after: how wide the edges are; less than 0 where the layer cropped.
    """
    shape = list(gradient.shape)
    shape[dim] = num_inputs
    out = torch.zeros(shape, dtype=gradient.dtype, device=gradient.device)
    start, end = max(-before, 0), num_inputs - max(-after, 0)
    if end > start:
        out.narrow(dim, start, end - start).copy_(gradient.narrow(dim, max(before, 0), end - start))
    return out


def _make_pad_backward_kernels(
    layer: str, add_edges_in_place: Callable[[Tensor, Tensor, int, int, int], None]
) -> tuple[Kernel, ...]:
    """The gradients of a padding layer of one to three dimensions, one dimension after the other.

    fold_edges(inner, gradient, dim, before, after): add the edges of `gradient` along `dim`, as wide as `before` and
    `after` say (none where that is not above 0), to `inner`, which holds what lies between them.
    """

    def pad_backward(grad_output: Tensor, self: Tensor, padding: list[int]) -> Tensor:
        out = upcast_half_to_float32(grad_output)
        for dim, (before, after) in enumerate(zip(padding[::2], padding[1::2], strict=True), start=1):
            inner = _crop_padding(out, -dim, self.shape[-dim], before, after)
            add_edges_in_place(inner, out, -dim, before, after)
            out = inner
        return out.to(grad_output.dtype)

    names = (f"{layer}{dims}d_backward" for dims in (1, 2, 3))
    return tuple(Kernel(pad_backward, (name, f"{name}.grad_input")) for name in names)


def _add_reflected_edges_in_place(inner: Tensor, gradient: Tensor, dim: int, before: int, after: int) -> None:
    """Add the edges of `gradient` to the cells of `inner` that they mirror."""
    if before > 0:  # position before - k mirrors input k
        inner.narrow(dim, 1, before).add_(gradient.narrow(dim, 0, before).flip(dim))
    if after > 0:
        mirrored = gradient.narrow(dim, gradient.shape[dim] - after, after).flip(dim)
        inner.narrow(dim, inner.shape[dim] - 1 - after, after).add_(mirrored)


REFLECTION_PAD = DeterministicOperator(
    "reflection_pad",
    ("torch.nn.ReflectionPad1d", "torch.nn.ReflectionPad2d", "torch.nn.ReflectionPad3d"),
    "The gradients of nn.ReflectionPad1d, 2d and 3d.",
    "One dimension after the other, the middle is copied, then the mirrored edge before it is added, then the one"
    " after it.",
    "For each dimension a copy of the gradient and two sums over its edges.",
    _make_pad_backward_kernels("reflection_pad", _add_reflected_edges_in_place),
)


def _add_replicated_edges_in_place(inner: Tensor, gradient: Tensor, dim: int, before: int, after: int) -> None:
    """Add the sum of each edge of `gradient` to the end of `inner` that it repeats."""
    if before > 0:
        inner.narrow(dim, 0, 1).add_(gradient.narrow(dim, 0, before).sum(dim, keepdim=True))
    if after > 0:
        edge = gradient.narrow(dim, gradient.shape[dim] - after, after)
        inner.narrow(dim, inner.shape[dim] - 1, 1).add_(edge.sum(dim, keepdim=True))


REPLICATION_PAD = DeterministicOperator(
    "replication_pad",
    ("torch.nn.ReplicationPad1d", "torch.nn.ReplicationPad2d", "torch.nn.ReplicationPad3d"),
    "The gradients of nn.ReplicationPad1d, 2d and 3d, where they are called without torch.nn.functional (which writes"
    " them otherwise in deterministic mode).",
    "One dimension after the other, the middle is copied, and the sums over both edges are added to its ends.",
    "For each dimension a copy of the gradient and two sums over its edges.",
    _make_pad_backward_kernels("replication_pad", _add_replicated_edges_in_place),
)

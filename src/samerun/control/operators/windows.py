"""The way back through a linear map of one dimension, as gathers.

Forward, each output reads a few inputs, each with a weight: pools, interpolation, padding. Back, torch's kernels
let each output add into what it read, so the order of the sums is that of the threads. Here each input gathers
the outputs that read it, in ascending order.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

FEW = 8
"""Up to so many outputs of one input are added one after the other; more by one gather and `sum`."""


@dataclass(frozen=True)
class Readers:
    """Which outputs read each input. outputs: int64[inputs, most]; weights: the same shape, or None (all one).

    there: bool[inputs, most], False where an input has fewer readers than others; None: all have as many.
    """

    outputs: Tensor
    weights: Tensor | None
    there: Tensor | None
    work: int
    """How many (output, input) pairs there are."""


def readers(sources: Tensor, weights: Tensor | None, inputs: int, device: torch.device) -> Readers:
    """Turn a map around.

    sources: int64[outputs, taps] on the CPU, the inputs that each output reads, -1 for none. weights: floats of the
    same shape, or None. inputs: how many there are.
    """
    taps = sources.shape[1]
    flat = sources.reshape(-1)
    order = torch.sort(flat, stable=True).indices
    order = order[int((flat < 0).sum()) :]
    counts = torch.bincount(flat[order], minlength=inputs)
    most = max(int(counts.max()), 1) if inputs else 1
    starts = torch.cumsum(counts, 0) - counts
    step = torch.arange(most, device="cpu")
    there = step < counts.unsqueeze(1)
    if order.numel() == 0:
        order = torch.zeros(1, dtype=torch.int64, device="cpu")
    pick = order[torch.where(there, starts.unsqueeze(1) + step, 0).clamp_(max=order.numel() - 1)]
    outputs = torch.where(there, torch.div(pick, taps, rounding_mode="floor"), 0)
    weight = None if weights is None else torch.where(there, weights.reshape(-1)[pick], 0).to(device)
    return Readers(outputs.to(device), weight, None if bool(there.all()) else there.to(device), order.numel())


def gathered(gradient: Tensor, dim: int, table: Readers) -> Tensor:
    """The gradient of the inputs along `dim` (counted from the end: -1, -2, ...), from that of the outputs."""
    inputs, most = table.outputs.shape
    tail = (1,) * (-1 - dim)
    if most > FEW and inputs * most <= 2 * table.work:
        wide: Tensor = gradient.index_select(dim, table.outputs.flatten())
        wide = wide.unflatten(dim, (inputs, most))  # type: ignore[no-untyped-call]
        if table.weights is not None:
            wide = wide * table.weights.view(inputs, most, *tail)
        if table.there is not None:
            wide = torch.where(table.there.view(inputs, most, *tail), wide, 0)
        return wide.sum(dim)
    out: Tensor | None = None
    for step in range(most):
        part = gradient.index_select(dim, table.outputs[:, step])
        if table.weights is not None:
            part = part * table.weights[:, step].view(-1, *tail)
        if table.there is not None:
            part = torch.where(table.there[:, step].view(-1, *tail), part, 0)
        out = part if out is None else out + part
    assert out is not None
    return out

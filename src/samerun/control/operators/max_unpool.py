"""nn.MaxUnpool1d, 2d and 3d, which write each input to the cell that its index names."""

from __future__ import annotations

import torch
from torch import Tensor

from samerun.control.operators.declare import Kernel, Operator
from samerun.control.operators.segments import grouped, in_planes, last


def unpooled(self: Tensor, indices: Tensor, output_size: list[int], dims: int) -> Tensor:
    """Of several inputs for one cell, the last one stays."""
    name, size = f"max_unpool{dims}d", torch.Size(output_size).numel()
    if indices.dtype is not torch.int64 or indices.shape != self.shape or len(output_size) != dims:
        raise RuntimeError(
            f"{name}(): indices must be int64 and of the shape of the input, {tuple(self.shape)}; they are"
            f" {indices.dtype} and of the shape {tuple(indices.shape)}, and output_size has {len(output_size)} entries."
        )
    shape = (*self.shape[:-dims], *output_size)
    out = torch.zeros(shape, dtype=self.dtype, device=self.device)
    if not self.numel():
        return out
    low, high = torch.aminmax(indices)
    if int(low) < 0 or int(high) >= size:
        raise RuntimeError(f"{name}(): found an invalid max index: output_size={list(output_size)} has {size} cells.")
    groups = grouped(in_planes(indices, self.shape[:-dims].numel(), size))
    out.view(-1).index_put_((groups.keys,), last(self.reshape(-1), groups))
    return out


def unpooled_2d(self: Tensor, indices: Tensor, output_size: list[int]) -> Tensor:
    return unpooled(self, indices, output_size, 2)


def unpooled_3d(self: Tensor, indices: Tensor, output_size: list[int], stride: list[int], padding: list[int]) -> Tensor:
    return unpooled(self, indices, output_size, 3)


OPERATOR = Operator(
    "max_unpool",
    ("torch.nn.MaxUnpool1d", "torch.nn.MaxUnpool2d", "torch.nn.MaxUnpool3d"),
    "nn.MaxUnpool1d, 2d and 3d, on the CPU too, where threads race for a cell.",
    "Inputs are sorted by the cell they go to, stably, and the last one of each cell is written.",
    "A sort of as many 64-bit numbers as there are inputs; the device is waited for.",
    (
        Kernel(unpooled_2d, ("max_unpool2d", "max_unpool2d.out"), ("CPU", "CUDA")),
        Kernel(unpooled_3d, ("max_unpool3d", "max_unpool3d.out"), ("CPU", "CUDA")),
    ),
)

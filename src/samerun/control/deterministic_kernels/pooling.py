"""Pooling: the gradients of average and max pooling, and max unpooling."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor

from samerun.control.deterministic_kernels.declare import DeterministicOperator, Kernel, upcast_half_to_float32
from samerun.control.deterministic_kernels.ordered_sums import (
    TransposedMap,
    group_rows_by_key,
    plane_to_flat_indices,
    sum_output_gradients_over_readers,
    sum_rows_by_key,
    take_last_row_of_each_group,
    transpose_output_to_input_map,
)


class _AdaptiveWindows(NamedTuple):
    readers: TransposedMap
    window_sizes: Tensor
    """int64[outputs], how many inputs each output reads."""


@lru_cache(maxsize=256)
def _adaptive_readers_and_window_sizes(num_inputs: int, num_outputs: int, device: torch.device) -> _AdaptiveWindows:
    """Which outputs of adaptive pooling read each input, along one dimension."""
    out = torch.arange(num_outputs, device="cpu")
    starts = torch.div(out * num_inputs, num_outputs, rounding_mode="floor")
    ends = -torch.div(-(out + 1) * num_inputs, num_outputs, rounding_mode="floor")
    readers = transpose_output_to_input_map(
        _window_indices_padded_with_minus_one(starts, ends), None, num_inputs, device
    )
    return _AdaptiveWindows(readers, (ends - starts).to(device))


@lru_cache(maxsize=256)
def _sliding_windows_of_each_input(
    num_inputs: int, num_outputs: int, kernel_size: int, stride: int, padding: int, device: torch.device
) -> TransposedMap:
    """Which windows of `kernel_size` inputs, `stride` apart, read each input, with `padding` more on either side."""
    starts = torch.arange(num_outputs, device="cpu") * stride - padding
    inputs = _window_indices_padded_with_minus_one(starts.clamp(min=0), (starts + kernel_size).clamp(max=num_inputs))
    return transpose_output_to_input_map(inputs, None, num_inputs, device)


def _window_indices_padded_with_minus_one(starts: Tensor, ends: Tensor) -> Tensor:
    """int64[outputs, taps]: start, start + 1, ... up to before the end of each window; then -1."""
    most = max(int((ends - starts).max()), 1) if starts.numel() else 1
    taps = starts.unsqueeze(1) + torch.arange(most, device="cpu")
    return torch.where(taps < ends.unsqueeze(1), taps, -1)


def _adaptive_avg_pool_backward(grad_output: Tensor, self: Tensor, dims: int) -> Tensor:
    out = upcast_half_to_float32(grad_output)
    for dim in range(-1, -1 - dims, -1):
        readers, window_sizes = _adaptive_readers_and_window_sizes(self.shape[dim], out.shape[dim], self.device)
        out = sum_output_gradients_over_readers(out / window_sizes.view(-1, *(1,) * (-1 - dim)), dim, readers)
    return out.to(grad_output.dtype)


def adaptive_avg_pool2d_backward(grad_output: Tensor, self: Tensor) -> Tensor:
    return _adaptive_avg_pool_backward(grad_output, self, 2)


def adaptive_avg_pool3d_backward(grad_output: Tensor, self: Tensor) -> Tensor:
    return _adaptive_avg_pool_backward(grad_output, self, 3)


ADAPTIVE_AVG_POOL = DeterministicOperator(
    "adaptive_avg_pool",
    ("torch.nn.AdaptiveAvgPool2d", "torch.nn.AdaptiveAvgPool3d"),
    "The gradients of nn.AdaptiveAvgPool1d, 2d and 3d.",
    "One dimension after the other, each input gathers the outputs that averaged over it, in ascending order.",
    "For each dimension a gather, a division and a sum over the gradient; its size again in memory.",
    (
        Kernel(adaptive_avg_pool2d_backward, ("_adaptive_avg_pool2d_backward",)),
        Kernel(
            adaptive_avg_pool3d_backward, ("_adaptive_avg_pool3d_backward", "adaptive_avg_pool3d_backward.grad_input")
        ),
    ),
)


def avg_pool3d_backward(
    grad_output: Tensor, self: Tensor, kernel_size: list[int], stride: list[int], padding: list[int],
    ceil_mode: bool, count_include_pad: bool, divisor_override: int | None,
) -> Tensor:  # fmt: skip
    sizes, steps, pads = _expand_to_3d(kernel_size), _expand_to_3d(stride or kernel_size), _expand_to_3d(padding)
    out = upcast_half_to_float32(grad_output)
    if divisor_override:
        out = out / divisor_override
    for dim in (-1, -2, -3):
        inputs, size, step, pad = self.shape[dim], sizes[dim], steps[dim], pads[dim]
        if not divisor_override:
            counts = _divisor_per_output(out.shape[dim], inputs, size, step, pad, count_include_pad, out.device)
            out = out / counts.view(-1, *(1,) * (-1 - dim))
        out = sum_output_gradients_over_readers(
            out, dim, _sliding_windows_of_each_input(inputs, out.shape[dim], size, step, pad, out.device)
        )
    return out.to(grad_output.dtype)


def _expand_to_3d(sizes: list[int]) -> list[int]:
    return list(sizes) * 3 if len(sizes) == 1 else list(sizes)


def _divisor_per_output(
    num_outputs: int,
    num_inputs: int,
    kernel_size: int,
    stride: int,
    padding: int,
    count_include_pad: bool,
    device: torch.device,
) -> Tensor:
    """Over how many cells each output averages: the padding counts where the module was told so."""
    start = torch.arange(num_outputs, device=device) * stride - padding
    end = (start + kernel_size).clamp(max=num_inputs + padding)
    return end - start if count_include_pad else end.clamp(max=num_inputs) - start.clamp(min=0)


AVG_POOL3D = DeterministicOperator(
    "avg_pool3d",
    ("torch.nn.AvgPool3d",),
    "The gradient of nn.AvgPool3d.",
    "One dimension after the other, each input gathers the outputs that averaged over it, in ascending order.",
    "For each dimension a gather and a sum for each window that an input lies in (size / stride).",
    (Kernel(avg_pool3d_backward, ("avg_pool3d_backward", "avg_pool3d_backward.grad_input")),),
)


def _max_pool_backward(grad_output: Tensor, self: Tensor, indices: Tensor, dims: int) -> Tensor:
    """indices: the position, in its plane, of the input that each output took."""
    plane = self.shape[-dims:].numel()
    planes = self.shape[:-dims].numel()
    keys = plane_to_flat_indices(indices, planes, plane)
    return sum_rows_by_key(keys, grad_output.reshape(-1), planes * plane).view(self.shape)


def adaptive_max_pool2d_backward(grad_output: Tensor, self: Tensor, indices: Tensor) -> Tensor:
    return _max_pool_backward(grad_output, self, indices, 2)


def adaptive_max_pool3d_backward(grad_output: Tensor, self: Tensor, indices: Tensor) -> Tensor:
    return _max_pool_backward(grad_output, self, indices, 3)


def fractional_max_pool2d_backward(
    grad_output: Tensor, self: Tensor, kernel_size: list[int], output_size: list[int], indices: Tensor
) -> Tensor:
    return _max_pool_backward(grad_output, self, indices, 2)


def fractional_max_pool3d_backward(
    grad_output: Tensor, self: Tensor, kernel_size: list[int], output_size: list[int], indices: Tensor
) -> Tensor:
    return _max_pool_backward(grad_output, self, indices, 3)


def max_pool3d_backward(
    grad_output: Tensor,
    self: Tensor,
    kernel_size: list[int],
    stride: list[int],
    padding: list[int],
    dilation: list[int],
    ceil_mode: bool,
    indices: Tensor,
) -> Tensor:
    return _max_pool_backward(grad_output, self, indices, 3)


def _make_pool_backward_kernel(compute: Callable[..., Tensor], overload: str) -> Kernel:
    return Kernel(compute, (overload, f"{overload}.grad_input"))


MAX_POOL = DeterministicOperator(
    "max_pool",
    (
        "torch.nn.AdaptiveMaxPool2d", "torch.nn.FractionalMaxPool2d", "torch.nn.FractionalMaxPool3d",
        "torch.nn.MaxPool3d",
    ),
    "The gradients of nn.AdaptiveMaxPool2d and 3d, nn.FractionalMaxPool2d and 3d, and nn.MaxPool3d.",
    "The gradients of the outputs are sorted by the input that each took, stably, and those of one input are added"
    " in the order of the outputs.",
    "A sort of as many 64-bit numbers as there are outputs; the device is waited for.",
    (
        _make_pool_backward_kernel(adaptive_max_pool2d_backward, "adaptive_max_pool2d_backward"),
        _make_pool_backward_kernel(adaptive_max_pool3d_backward, "adaptive_max_pool3d_backward"),
        _make_pool_backward_kernel(fractional_max_pool2d_backward, "fractional_max_pool2d_backward"),
        _make_pool_backward_kernel(fractional_max_pool3d_backward, "fractional_max_pool3d_backward"),
        _make_pool_backward_kernel(max_pool3d_backward, "max_pool3d_with_indices_backward"),
    ),
)  # fmt: skip


def _max_unpool(self: Tensor, indices: Tensor, output_size: list[int], dims: int) -> Tensor:
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
    groups = group_rows_by_key(plane_to_flat_indices(indices, self.shape[:-dims].numel(), size))
    out.view(-1).index_put_((groups.keys,), take_last_row_of_each_group(self.reshape(-1), groups))
    return out


def max_unpool2d(self: Tensor, indices: Tensor, output_size: list[int]) -> Tensor:
    return _max_unpool(self, indices, output_size, 2)


def max_unpool3d(
    self: Tensor, indices: Tensor, output_size: list[int], stride: list[int], padding: list[int]
) -> Tensor:
    return _max_unpool(self, indices, output_size, 3)


MAX_UNPOOL = DeterministicOperator(
    "max_unpool",
    ("torch.nn.MaxUnpool1d", "torch.nn.MaxUnpool2d", "torch.nn.MaxUnpool3d"),
    "nn.MaxUnpool1d, 2d and 3d, on the CPU too, where threads race for a cell.",
    "Inputs are sorted by the cell they go to, stably, and the last one of each cell is written.",
    "A sort of as many 64-bit numbers as there are inputs; the device is waited for.",
    (
        Kernel(max_unpool2d, ("max_unpool2d", "max_unpool2d.out"), ("CPU", "CUDA")),
        Kernel(max_unpool3d, ("max_unpool3d", "max_unpool3d.out"), ("CPU", "CUDA")),
    ),
)

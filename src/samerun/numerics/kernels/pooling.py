"""Average pooling over 1, 2 or 3 dimensions. (Maximum pooling only chooses: class E, torch's own is exact.)

A window is summed by class S, its taps in row-major order; taps outside of x are absent. Then one division.
Sizes and settings have one value for each pooled dimension, which are the last ones of x.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Any

import torch

from samerun.numerics.kernels import sums
from samerun.numerics.kernels.tensors import require_opmath_dtype

Sizes = Sequence[int]
LANES, BLOCK = 32, 4096


def _divisors_along_dim(
    size: int,
    kernel_size: int,
    stride: int,
    padding: int,
    num_windows: int,
    count_include_pad: bool,
    device: torch.device,
) -> torch.Tensor:
    """How many positions each window divides by, along one dimension."""
    start = torch.arange(num_windows, device=device) * stride - padding
    end = (start + kernel_size).clamp_max(size + padding)
    return end - start if count_include_pad else end.clamp_max(size) - start.clamp_min(0)


def _pooled_size(size: int, kernel_size: int, stride: int, padding: int, ceil_mode: bool) -> int:
    reach = size + 2 * padding - kernel_size
    out = (reach + (stride - 1 if ceil_mode else 0)) // stride + 1
    return out - 1 if ceil_mode and (out - 1) * stride >= size + padding else out


def _divisor_per_window(
    x: torch.Tensor, kernel_size: Sizes, stride: Sizes, padding: Sizes, output_sizes: Sizes, count_include_pad: bool,
    divisor_override: int | None,
) -> torch.Tensor:  # fmt: skip
    found = torch.ones((), dtype=torch.int64, device=x.device)
    for dim, out in enumerate(output_sizes):
        size = x.shape[dim - len(output_sizes)]
        counts = _divisors_along_dim(
            size, kernel_size[dim], stride[dim], padding[dim], out, count_include_pad, x.device
        )
        found = found[..., None] * counts
    return torch.full_like(found, divisor_override) if divisor_override else found


def _slice_last_dims(x: torch.Tensor, slices: Sequence[slice]) -> torch.Tensor:
    where: Any = (..., *slices)
    return x[where]


def _iterate_strided_tap_views(
    x: torch.Tensor, kernel_size: Sizes, stride: Sizes, output_sizes: Sizes
) -> Iterator[torch.Tensor]:
    """Of each window the first value, of each the second, ..."""
    for firsts in itertools.product(*map(range, kernel_size)):
        every = zip(firsts, output_sizes, stride, strict=True)
        yield _slice_last_dims(x, [slice(at, at + (out - 1) * step + 1, step) for at, out, step in every])


def _window_sums(x: torch.Tensor, kernel_size: Sizes, stride: Sizes, output_sizes: Sizes) -> torch.Tensor:
    """Class S over each window: its lanes and their tree, written for all windows at once."""
    n = len(kernel_size)
    if math.prod(kernel_size) > BLOCK:
        for dim in range(n):
            x = x.unfold(-n, kernel_size[dim], stride[dim]).narrow(-n - 1, 0, output_sizes[dim])
        return sums.tree_sum("x", x, list(range(x.ndim - n, x.ndim)))
    lanes: list[torch.Tensor] = []
    for number, tap in enumerate(_iterate_strided_tap_views(x, kernel_size, stride, output_sizes)):
        if number < LANES:
            lanes.append(tap)
        else:
            lanes[number % LANES] = lanes[number % LANES] + tap
    half = LANES // 2
    while half:
        for lane in range(half, len(lanes)):
            lanes[lane - half] = lanes[lane - half] + lanes[lane]
        lanes, half = lanes[:half], half // 2
    return lanes[0]


def avg_pool(
    x: torch.Tensor, kernel_size: Sizes, stride: Sizes = (), padding: Sizes = (), ceil_mode: bool = False,
    count_include_pad: bool = True, divisor: int | None = None,
) -> torch.Tensor:  # fmt: skip
    """The mean of windows over the last len(kernel) dimensions; the other arguments as torch's avg_pool has them."""
    n = len(kernel_size)
    stride, padding = stride or kernel_size, padding or (0,) * n
    dtype = require_opmath_dtype("avg_pool", x)
    output_sizes = [
        _pooled_size(x.shape[dim - n], kernel_size[dim], stride[dim], padding[dim], ceil_mode) for dim in range(n)
    ]
    margins: list[int] = []
    for dim in reversed(range(n)):
        needed = (output_sizes[dim] - 1) * stride[dim] + kernel_size[dim]
        margins += [padding[dim], max(0, needed - padding[dim] - x.shape[dim - n])]
    wide = x.detach().to(dtype)
    if any(margins):  # the identity of addition stands for taps that are not there
        wide = torch.nn.functional.pad(wide, margins, value=-0.0)
    divisors = _divisor_per_window(x, kernel_size, stride, padding, output_sizes, count_include_pad, divisor)
    return (_window_sums(wide, kernel_size, stride, output_sizes) / divisors.to(dtype)).to(x.dtype)


def avg_pool_backward(
    grad: torch.Tensor, x: torch.Tensor, kernel_size: Sizes, stride: Sizes = (), padding: Sizes = (),
    count_include_pad: bool = True, divisor: int | None = None,
) -> torch.Tensor:  # fmt: skip
    """The gradient of x: from +0.0 on, grad / divisor of each window over a value, in ascending window."""
    n = len(kernel_size)
    stride, padding = stride or kernel_size, padding or (0,) * n
    dtype = require_opmath_dtype("avg_pool", grad, x)
    output_sizes = list(grad.shape[-n:])
    terms = grad.detach().to(dtype) / _divisor_per_window(
        x, kernel_size, stride, padding, output_sizes, count_include_pad, divisor
    ).to(dtype)
    room = [(output_sizes[dim] - 1) * stride[dim] + kernel_size[dim] for dim in range(n)]
    room = [max(room[dim], padding[dim] + x.shape[dim - n]) for dim in range(n)]
    out = torch.zeros([*x.shape[:-n], *room], dtype=dtype, device=x.device)
    # Of the windows over a value, the one that has it at its last tap comes first.
    for place in reversed(list(_iterate_strided_tap_views(out, kernel_size, stride, output_sizes))):
        place += terms
    for dim in range(n):
        out = out.narrow(dim - n, padding[dim], x.shape[dim - n])
    return out.to(x.dtype)


def _uniform_window_size(x: torch.Tensor, output_sizes: Sizes) -> list[int] | None:
    """The window's size where all stretches are equally long, else None."""
    sizes = x.shape[-len(output_sizes) :]
    if any(out == 0 or size % out for size, out in zip(sizes, output_sizes, strict=True)):
        return None
    return [size // out for size, out in zip(sizes, output_sizes, strict=True)]


def _iterate_adaptive_windows(
    x: torch.Tensor, output_sizes: Sizes
) -> Iterator[tuple[tuple[slice, ...], tuple[slice, ...]]]:
    """Each window: where it lies in x, and where its mean lies. It ends at ceil((i + 1) * size / out)."""
    sizes = x.shape[-len(output_sizes) :]
    for at in itertools.product(*map(range, output_sizes)):
        window = (
            slice(i * s // out, -(-(i + 1) * s // out)) for i, s, out in zip(at, sizes, output_sizes, strict=True)
        )
        yield tuple(window), tuple(slice(i, i + 1) for i in at)


def adaptive_avg_pool(x: torch.Tensor, output_sizes: Sizes) -> torch.Tensor:
    """The mean of output_sizes[d] stretches a dimension: from floor(i*size/out) to ceil((i+1)*size/out)."""
    kernel = _uniform_window_size(x, output_sizes)
    if kernel is not None and 0 not in kernel:
        return avg_pool(x, kernel)
    dtype = require_opmath_dtype("adaptive_avg_pool", x)
    over = list(range(x.ndim - len(output_sizes), x.ndim))
    wide = x.detach().to(dtype)
    result = torch.empty([*x.shape[: x.ndim - len(output_sizes)], *output_sizes], dtype=dtype, device=x.device)
    for window, place in _iterate_adaptive_windows(x, output_sizes):
        _slice_last_dims(result, place).copy_(sums.mean(_slice_last_dims(wide, window), over, keepdim=True))
    return result.to(x.dtype)


def adaptive_avg_pool_backward(grad: torch.Tensor, x: torch.Tensor, num_dims: int) -> torch.Tensor:
    """The gradient of x, pooled over its last n dimensions: from +0.0 on, grad / size of each stretch over a value,
    in ascending stretch.
    """
    output_sizes = grad.shape[-num_dims:]
    kernel = _uniform_window_size(x, output_sizes)
    if kernel is not None and 0 not in kernel:
        return avg_pool_backward(grad, x, kernel)
    dtype = require_opmath_dtype("adaptive_avg_pool", grad, x)
    wide, out = grad.detach().to(dtype), torch.zeros(x.shape, dtype=dtype, device=x.device)
    for window, place in _iterate_adaptive_windows(x, output_sizes):
        part = _slice_last_dims(out, window)
        part += _slice_last_dims(wide, place) / torch.full(
            (), math.prod(part.shape[-len(output_sizes) :]), dtype=dtype, device=x.device
        )
    return out.to(x.dtype)

"""Average pooling over 1, 2 or 3 dimensions. (Maximum pooling only chooses: class E, torch's own is exact.)

A window is summed by class S, its taps in row-major order; taps outside of x are absent. Then one division.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from samerun.numerics import sums
from samerun.numerics.tensors import compute_type

Sizes = Sequence[int]


def _counts(size: int, kernel: int, stride: int, padding: int, out: int, include_padding: bool) -> torch.Tensor:
    """How many positions each window divides by, along one dimension."""
    start = torch.arange(out) * stride - padding
    end = (start + kernel).clamp_max(size + padding)
    return end - start if include_padding else end.clamp_max(size) - start.clamp_min(0)


def _outputs(size: int, kernel: int, stride: int, padding: int, ceil_mode: bool) -> int:
    reach = size + 2 * padding - kernel
    out = (reach + (stride - 1 if ceil_mode else 0)) // stride + 1
    return out - 1 if ceil_mode and (out - 1) * stride >= size + padding else out


def _divisors(
    x: torch.Tensor, kernel: Sizes, stride: Sizes, padding: Sizes, outs: Sizes, include_padding: bool,
    divisor: int | None,
) -> torch.Tensor:  # fmt: skip
    found = torch.ones((), dtype=torch.int64)
    for dim, out in enumerate(outs):
        size = x.shape[dim - len(outs)]
        counts = _counts(size, kernel[dim], stride[dim], padding[dim], out, include_padding)
        found = found[..., None] * counts
    return torch.full_like(found, divisor) if divisor else found


def avg_pool(
    x: torch.Tensor, kernel: Sizes, stride: Sizes = (), padding: Sizes = (), ceil_mode: bool = False,
    include_padding: bool = True, divisor: int | None = None,
) -> torch.Tensor:  # fmt: skip
    """The mean of windows over the last len(kernel) dimensions; the other arguments as torch's avg_pool has them."""
    n = len(kernel)
    stride, padding = stride or kernel, padding or (0,) * n
    dtype = compute_type("avg_pool", x)
    outs = [_outputs(x.shape[dim - n], kernel[dim], stride[dim], padding[dim], ceil_mode) for dim in range(n)]
    margins: list[int] = []
    for dim in reversed(range(n)):
        needed = (outs[dim] - 1) * stride[dim] + kernel[dim]
        margins += [padding[dim], max(0, needed - padding[dim] - x.shape[dim - n])]
    # The identity of addition stands for taps that are not there.
    wide = torch.nn.functional.pad(x.detach().to(dtype), margins, value=-0.0)
    for dim in range(n):
        wide = wide.unfold(-n, kernel[dim], stride[dim]).narrow(-n - 1, 0, outs[dim])
    total = sums.tree("x", wide, list(range(wide.ndim - n, wide.ndim)))
    divisors = _divisors(x, kernel, stride, padding, outs, include_padding, divisor)
    return (total / divisors.to(dtype)).to(x.dtype)


def avg_pool_backward(
    grad: torch.Tensor, x: torch.Tensor, kernel: Sizes, stride: Sizes = (), padding: Sizes = (),
    include_padding: bool = True, divisor: int | None = None,
) -> torch.Tensor:  # fmt: skip
    """The gradient of x: from +0.0 on, grad / divisor of each window over a value, in ascending window."""
    n = len(kernel)
    stride, padding = stride or kernel, padding or (0,) * n
    dtype = compute_type("avg_pool", grad, x)
    outs = list(grad.shape[-n:])
    terms = grad.detach().to(dtype) / _divisors(x, kernel, stride, padding, outs, include_padding, divisor).to(dtype)
    room = [(outs[dim] - 1) * stride[dim] + kernel[dim] for dim in range(n)]
    room = [max(room[dim], padding[dim] + x.shape[dim - n]) for dim in range(n)]
    out = torch.zeros([*x.shape[:-n], *room], dtype=dtype)
    # Of the windows over a value, the one that has it at its last tap comes first.
    for tap in reversed(range(math.prod(kernel))):
        place = out
        for dim in reversed(range(n)):
            tap, first = divmod(tap, kernel[dim])
            place = place.narrow(dim - n, first, (outs[dim] - 1) * stride[dim] + 1)
            slices = [slice(None)] * place.ndim
            slices[dim - n] = slice(None, None, stride[dim])
            place = place[tuple(slices)]
        place += terms
    for dim in range(n):
        out = out.narrow(dim - n, padding[dim], x.shape[dim - n])
    return out.to(x.dtype)


def adaptive_avg_pool(x: torch.Tensor, outs: Sizes) -> torch.Tensor:
    """The mean of outs[d] stretches a dimension: from floor(i*size/out) to ceil((i+1)*size/out)."""
    n = len(outs)
    dtype = compute_type("adaptive_avg_pool", x)
    wide, result = x.detach().to(dtype), torch.empty([*x.shape[:-n], *outs], dtype=dtype)
    for number in range(math.prod(outs)):
        window, place, left = wide, result, number
        for dim in reversed(range(n)):
            left, i = divmod(left, outs[dim])
            size = x.shape[dim - n]
            start, end = i * size // outs[dim], -(-(i + 1) * size // outs[dim])
            window, place = window.narrow(dim - n, start, end - start), place.narrow(dim - n, i, 1)
        place.copy_(sums.mean(window, list(range(x.ndim - n, x.ndim)), keepdim=True))
    return result.to(x.dtype)

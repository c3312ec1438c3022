"""Average pooling and maximum unpooling, as torch calls them. (torch's own kernels add a window one after
the other, not by class S.)"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from samerun.numerics.aten_handlers.declare import Members, widen_half_inputs
from samerun.numerics.kernels import library, ordered_scatter
from samerun.numerics.kernels import pooling as kernels

Sizes = Sequence[int]


def _expand_per_dimension(values: Sizes, num_dims: int) -> list[int]:
    """One number may stand for all dimensions."""
    return list(values) * num_dims if len(values) == 1 else list(values)


def _make_avg_pool_handler(num_dims: int) -> Callable[..., Tensor]:
    def pool(
        x: Tensor,
        kernel_size: Sizes,
        stride: Sizes = (),
        padding: Sizes = (0,),
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: int | None = None,
    ) -> Tensor:
        sizes, steps, margins = (_expand_per_dimension(given, num_dims) for given in (kernel_size, stride, padding))
        return kernels.avg_pool(x, sizes, steps, margins, ceil_mode, count_include_pad, divisor_override)

    return pool


def _make_avg_pool_backward_handler(num_dims: int) -> Callable[..., Tensor]:
    def backward(
        grad: Tensor,
        x: Tensor,
        kernel_size: Sizes,
        stride: Sizes,
        padding: Sizes,
        ceil_mode: bool,
        count_include_pad: bool,
        divisor_override: int | None,
    ) -> Tensor:
        sizes, steps, margins = (_expand_per_dimension(given, num_dims) for given in (kernel_size, stride, padding))
        return kernels.avg_pool_backward(grad, x, sizes, steps, margins, count_include_pad, divisor_override)

    return backward


def _make_adaptive_avg_pool_handler(num_dims: int) -> Callable[[Tensor, Sizes], Tensor]:
    return lambda x, outs: kernels.adaptive_avg_pool(x, _expand_per_dimension(outs, num_dims))


def _make_adaptive_avg_pool_backward_handler(num_dims: int) -> Callable[[Tensor, Tensor], Tensor]:
    return lambda g, x: kernels.adaptive_avg_pool_backward(g, x, num_dims)


def _make_max_unpool_handler(torch_operator: Callable[..., Tensor], num_dims: int) -> Callable[..., Tensor]:
    def unpool(x: Tensor, indices: Tensor, size: Sizes, *settings: Sizes) -> Tensor:
        """Zeros with each value at its index in its volume; of several for one place the last stays."""
        volume = math.prod(size)
        fits = (
            x.dim() in (num_dims + 1, num_dims + 2)
            and x.shape == indices.shape
            and len(size) == num_dims
            and volume > 0
        )
        if not fits or indices.dtype is not torch.int64 or x.numel() == 0:
            return torch_operator(x, indices, size, *settings)  # torch's own words
        inside = ((indices >= 0) & (indices < volume)).all()
        if library.is_off_cpu(x):
            torch._assert_async(inside, "max_unpool: an index is out of bounds")
        elif not bool(inside):
            return torch_operator(x, indices, size, *settings)
        shape = x.shape[:-num_dims]
        first = torch.arange(math.prod(shape), device=x.device).reshape(*shape, *[1] * num_dims) * volume
        places, values = (indices + first).reshape(-1), x.reshape(-1)
        out = torch.zeros(math.prod(shape) * volume, dtype=x.dtype, device=x.device)
        out = (
            ordered_scatter.put_last_value_on_cuda_(out, places, values)
            if library.is_off_cpu(x)
            else out.scatter_(0, places, values)
        )
        return out.reshape(*shape, *size)

    return unpool


MEMBERS: Members = {
    "aten::avg_pool2d": _make_avg_pool_handler(2),
    "aten::avg_pool3d": _make_avg_pool_handler(3),
    "aten::avg_pool2d_backward": _make_avg_pool_backward_handler(2),
    "aten::avg_pool3d_backward": _make_avg_pool_backward_handler(3),
    "aten::_adaptive_avg_pool2d": _make_adaptive_avg_pool_handler(2),
    "aten::_adaptive_avg_pool3d": _make_adaptive_avg_pool_handler(3),
    "aten::_adaptive_avg_pool2d_backward": _make_adaptive_avg_pool_backward_handler(2),
    "aten::_adaptive_avg_pool3d_backward": _make_adaptive_avg_pool_backward_handler(3),
    "aten::adaptive_max_pool3d_backward": widen_half_inputs(ordered_scatter.make_max_pool_backward_handler(3)),
    "aten::max_unpool2d": _make_max_unpool_handler(torch._C._nn.max_unpool2d, 2),
    "aten::max_unpool3d": _make_max_unpool_handler(torch._C._nn.max_unpool3d, 3),
}

"""Average pooling, as torch calls it. (torch's own kernels add a window one after the other, not by class S.)"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from torch import Tensor

from samerun.numerics import pooling as kernels
from samerun.numerics.operators.declare import Members

Sizes = Sequence[int]


def _each(n: int, given: Sizes) -> list[int]:
    """One number may stand for all dimensions."""
    return list(given) * n if len(given) == 1 else list(given)


def _pool(n: int) -> Callable[..., Tensor]:
    def pool(
        x: Tensor,
        kernel: Sizes,
        stride: Sizes = (),
        padding: Sizes = (0,),
        ceil_mode: bool = False,
        include_padding: bool = True,
        divisor: int | None = None,
    ) -> Tensor:
        sizes, steps, margins = (_each(n, given) for given in (kernel, stride, padding))
        return kernels.avg_pool(x, sizes, steps, margins, ceil_mode, include_padding, divisor)

    return pool


def _backward(n: int) -> Callable[..., Tensor]:
    def backward(
        g: Tensor,
        x: Tensor,
        kernel: Sizes,
        stride: Sizes,
        padding: Sizes,
        ceil_mode: bool,
        include_padding: bool,
        divisor: int | None,
    ) -> Tensor:
        sizes, steps, margins = (_each(n, given) for given in (kernel, stride, padding))
        return kernels.avg_pool_backward(g, x, sizes, steps, margins, include_padding, divisor)

    return backward


def _adaptive(n: int) -> Callable[[Tensor, Sizes], Tensor]:
    return lambda x, outs: kernels.adaptive_avg_pool(x, _each(n, outs))


def _adaptive_backward(n: int) -> Callable[[Tensor, Tensor], Tensor]:
    return lambda g, x: kernels.adaptive_avg_pool_backward(g, x, n)


MEMBERS: Members = {
    "aten::avg_pool2d": _pool(2),
    "aten::avg_pool3d": _pool(3),
    "aten::avg_pool2d_backward": _backward(2),
    "aten::avg_pool3d_backward": _backward(3),
    "aten::_adaptive_avg_pool2d": _adaptive(2),
    "aten::_adaptive_avg_pool3d": _adaptive(3),
    "aten::_adaptive_avg_pool2d_backward": _adaptive_backward(2),
    "aten::_adaptive_avg_pool3d_backward": _adaptive_backward(3),
}

"""Operators that run otherwise on a CUDA device than on the CPU: where torch's CUDA kernel is not the exact one.

It multiplies by the reciprocal of a number instead of dividing by it, and adds (or writes) with atomics what goes to
one place. Everything else of the table is the same on both: torch's elementwise CUDA kernels round once, because they
are compiled with IEEE divisions and roots, and one operation leaves nothing to contract.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from samerun.numerics.aten_handlers.declare import (
    HALF_TYPES,
    Handler,
    Members,
    NoPortableKernel,
    divide_correctly_rounded,
    widen_half_inputs,
)
from samerun.numerics.kernels import elementwise, library, norms, ordered_scatter
from samerun.numerics.kernels.ordered_scatter import (
    make_max_pool_backward_handler,
    make_nearest_backward_handler,
    make_padding_backward,
)

aten = torch.ops.aten


@widen_half_inputs
def _divide_by_tensor(x: Tensor, divisor: Any) -> Tensor:
    return divide_correctly_rounded(x, divisor)


def div(x: Any, divisor: Any, *, rounding_mode: str | None = None) -> Tensor:
    """x / divisor, which becomes a tensor of the device where it is a number."""
    number = divisor.item() if isinstance(divisor, Tensor) and divisor.is_cpu and divisor.dim() == 0 else divisor
    if not isinstance(x, Tensor) or not library.is_off_cpu(x) or isinstance(number, Tensor):
        return torch.div(x, divisor, rounding_mode=rounding_mode)
    if rounding_mode is None:
        out: Tensor = _divide_by_tensor(x, number)
        return out
    if not x.is_floating_point() and isinstance(number, int):
        return torch.div(x, number, rounding_mode=rounding_mode)
    wide = x.float() if x.dtype is not torch.float64 else x
    found = torch.div(wide, torch.full((), number, dtype=wide.dtype, device=x.device), rounding_mode=rounding_mode)
    return found.to(x.dtype) if x.is_floating_point() else found


def floor_divide(x: Any, divisor: Any) -> Tensor:
    return div(x, divisor, rounding_mode="floor")


@widen_half_inputs
def threshold(x: Tensor, threshold: Any, value: Any) -> Tensor:
    """torch's CPU kernel compares in float32, its CUDA kernel with a threshold that it rounds to the type of x."""
    return torch.threshold(x, threshold, value)


def threshold_backward(grad: Tensor, x: Tensor, threshold: Any) -> Tensor:
    given = aten.threshold_backward.default
    out: Tensor = (given if threshold == 0 else widen_half_inputs(given))(grad, x, threshold)
    return out


def scatter(x: Tensor, dim: int, index: Tensor, source: Tensor) -> Tensor:
    """Of several values for one place the last stays."""
    if x.dim() == 0 or index.numel() == 0:
        return torch.scatter(x, dim, index, source)
    source = source[tuple(slice(size) for size in index.shape)]
    out = x.contiguous().clone().reshape(-1)
    return ordered_scatter.put_last_value_on_cuda_(
        out, ordered_scatter.check_and_linearize_scatter_indices(x, dim, index).reshape(-1), source
    ).reshape(x.shape)


def index_copy(x: Tensor, dim: int, index: Tensor, source: Tensor) -> Tensor:
    """Of several values for one place the last stays."""
    if x.dim() == 0:
        return torch.index_copy(x, dim, index, source)
    lines = index.reshape([-1 if at == dim % x.dim() else 1 for at in range(x.dim())]).expand(source.shape)
    return scatter(x, dim, lines, source)


def _make_fractional_pool_without_half_kernel(forward: Callable[..., Any]) -> Handler:
    def pool(x: Tensor, *settings: Any) -> Any:
        """torch places the windows in the type of x on the CPU, in float32 on CUDA."""
        if x.dtype in HALF_TYPES:
            raise NoPortableKernel(f"{x.dtype} on CUDA.", "Convert it to float32 first: tensor.float().")
        return forward(x, *settings)

    return pool


def cudnn_batch_norm(
    x: Tensor, weight: Tensor, bias: Tensor | None, running_mean: Tensor | None, running_var: Tensor | None,
    training: bool, momentum: float, eps: float,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    """What F.batch_norm calls on CUDA. The last result is cuDNN's own memory, of which there is none."""
    y, mean, r = norms.batch_norm(x, weight, bias, running_mean, running_var, training, momentum, eps)
    return y, mean, r, torch.empty(0, dtype=torch.uint8, device=x.device)


def cudnn_batch_norm_backward(
    x: Tensor, grad: Tensor, weight: Tensor, running_mean: Tensor | None, running_var: Tensor | None,
    mean: Tensor | None, rstd: Tensor | None, eps: float, reserved: Tensor,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    assert mean is not None and rstd is not None, "cudnn_batch_norm keeps them"
    return norms.batch_norm_backward(grad, x, mean, rstd, weight, True)


def flatten_recurrent_weights(weights: Sequence[Tensor], *layout: Any) -> Tensor:
    """What nn.LSTM calls when it is moved to a device: cuDNN's own memory, of which there is none. The weights stay."""
    return torch.empty(0, dtype=weights[0].dtype, device=weights[0].device)


MEMBERS: Members = {
    "aten::div": div,
    "aten::divide": div,
    "aten::true_divide": div,
    "aten::floor_divide": floor_divide,
    "aten::fmod": widen_half_inputs(elementwise.fmod),
    "aten::remainder": widen_half_inputs(elementwise.remainder),
    "aten::threshold": threshold,
    "aten::threshold_backward": threshold_backward,
    "aten::scatter.src": scatter,
    "aten::index_copy": index_copy,
    "aten::max_pool2d_with_indices_backward": widen_half_inputs(make_max_pool_backward_handler(2)),
    "aten::max_pool3d_with_indices_backward": widen_half_inputs(make_max_pool_backward_handler(3)),
    "aten::fractional_max_pool2d": _make_fractional_pool_without_half_kernel(aten.fractional_max_pool2d.default),
    "aten::fractional_max_pool3d": _make_fractional_pool_without_half_kernel(aten.fractional_max_pool3d.default),
    "aten::fractional_max_pool2d_backward": widen_half_inputs(make_max_pool_backward_handler(2)),
    "aten::fractional_max_pool3d_backward": widen_half_inputs(make_max_pool_backward_handler(3)),
    "aten::adaptive_max_pool2d_backward": widen_half_inputs(make_max_pool_backward_handler(2)),
    "aten::reflection_pad1d_backward": widen_half_inputs(make_padding_backward(aten.reflection_pad1d.default)),
    "aten::reflection_pad2d_backward": widen_half_inputs(make_padding_backward(aten.reflection_pad2d.default)),
    "aten::replication_pad1d_backward": widen_half_inputs(make_padding_backward(aten.replication_pad1d.default)),
    "aten::replication_pad2d_backward": widen_half_inputs(make_padding_backward(aten.replication_pad2d.default)),
    "aten::upsample_nearest1d_backward": widen_half_inputs(
        make_nearest_backward_handler(aten.upsample_nearest1d.default)
    ),
    "aten::upsample_nearest2d_backward": widen_half_inputs(
        make_nearest_backward_handler(aten.upsample_nearest2d.default)
    ),
    "aten::upsample_nearest3d_backward": widen_half_inputs(
        make_nearest_backward_handler(aten.upsample_nearest3d.default)
    ),
    "aten::_use_miopen_ctc_loss": lambda *given: False,
    "aten::_cudnn_rnn_flatten_weight": flatten_recurrent_weights,
    "aten::cudnn_batch_norm": cudnn_batch_norm,
    "aten::cudnn_batch_norm_backward": cudnn_batch_norm_backward,
}

"""Normalisations in float32 and float64, forward and backward: layer, rms, group, batch and instance norm.

mean, d = x - mean, v = mean(d*d), r = 1/sqrt(v + eps), y = (d*r)*w + b; sums of class S. Backward, with y the
normalised value and h = grad*w: ((h - mean(h)) - y*mean(h*y)) * r. The gradient of w is the sum of grad*y, that of
b the sum of grad, over the rows (batch, and positions) in ascending order. `reference/norms.py` is the text.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch

from samerun.numerics.kernels import library, sums
from samerun.numerics.kernels.elementwise import sqrt
from samerun.numerics.kernels.tensors import detach_cast_contiguous, require_numel, require_opmath_dtype, to_numpy
from samerun.numerics.reference import normalizations as reference
from samerun.numerics.status import DONE

OptionalTensor = torch.Tensor | None

_norm = library.declare_native_function("samerun_normalize_rows", "vifppppppllll")
_norm_backward = library.declare_native_function("samerun_normalize_rows_backward", "vipppppppllll")
_norm_backward_with_weight = library.declare_native_function(
    "samerun_normalize_rows_backward_with_weight", "iippppppppll"
)
_channels = library.declare_native_function("samerun_normalize_channels", "vpppppplll")
_channels_backward = library.declare_native_function("samerun_normalize_channels_backward", "iipppppppplll")


def _data_ptr_or_zero(x: OptionalTensor) -> int:
    """The address of its memory; 0 for None."""
    return 0 if x is None else x.data_ptr()


def _weight_per_value(
    values: OptionalTensor, num_rows: int, row_length: int, groups: int, values_per_weight: int
) -> np.ndarray | None:
    """The weight of each value of [num_rows, row_length]."""
    if values is None or row_length == 0:
        return None
    of_group = np.repeat(to_numpy(values).reshape(groups, row_length // values_per_weight), values_per_weight, axis=1)
    return np.tile(of_group, (num_rows // groups, 1))


def _normalize_rows(
    x: torch.Tensor,
    weight: OptionalTensor,
    bias: OptionalTensor,
    eps: float,
    is_rms: bool,
    stats_shape: Sequence[int],
    row_length: int,
    groups: int = 1,
    values_per_weight: int = 1,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """x dense: rows of row_length values, as many as `stats_shape`, the shape of the other two results, has places.

    Value j of row i has weight number (i % groups * row_length + j) / values_per_weight.
    """
    num_rows, values_per_weight = math.prod(stats_shape), max(values_per_weight, 1)
    require_numel("input", x, num_rows * row_length)
    if row_length:  # where rows are empty, nothing is read of the weights
        require_numel("weight", weight, groups * row_length // values_per_weight)
        require_numel("bias", bias, groups * row_length // values_per_weight)
    if x.dtype is torch.float64 or not library.uses_native_kernels(x):
        given = to_numpy(x.reshape(num_rows, row_length))
        weights, biases = (
            _weight_per_value(weight, num_rows, row_length, groups, values_per_weight),
            _weight_per_value(bias, num_rows, row_length, groups, values_per_weight),
        )
        y, mean, r = (torch.from_numpy(each) for each in reference.normalize_rows(is_rms, eps, given, weights, biases))
        return y.reshape(x.shape), mean.reshape(stats_shape), r.reshape(stats_shape)
    out, mean = torch.empty_like(x), x.new_empty(stats_shape)
    r = torch.empty_like(mean)
    _norm.for_device_of(x)(
        is_rms, eps, x.data_ptr(), _data_ptr_or_zero(weight), _data_ptr_or_zero(bias), out.data_ptr(),
        mean.data_ptr(), r.data_ptr(), num_rows, row_length, groups, values_per_weight,
    )  # fmt: skip
    return out, mean, r


def _rows_backward_and_weight_grad_terms(
    grad: torch.Tensor, x: torch.Tensor, weight: OptionalTensor, mean: OptionalTensor, r: torch.Tensor, row_length: int,
    groups: int = 1, values_per_weight: int = 1,
) -> tuple[torch.Tensor, torch.Tensor]:  # fmt: skip
    """The gradient of x, and the terms of the gradient of the weight. `mean` is None for rms norm."""
    rms, num_rows, values_per_weight = mean is None, r.numel(), max(values_per_weight, 1)
    require_numel("input", x, num_rows * row_length)
    require_numel("grad", grad, num_rows * row_length)
    if row_length:
        require_numel("weight", weight, groups * row_length // values_per_weight)
    require_numel("mean", mean, num_rows)
    if x.dtype is torch.float64 or not library.uses_native_kernels(x):
        weights = _weight_per_value(weight, num_rows, row_length, groups, values_per_weight)
        given, gradient = (to_numpy(each.reshape(num_rows, row_length)) for each in (x, grad))
        means = None if mean is None else to_numpy(mean)
        found = reference.normalize_rows_backward(rms, given, gradient, weights, means, to_numpy(r))
        out, terms = (torch.from_numpy(each).reshape(x.shape) for each in found)
        return out, terms
    out, terms = torch.empty_like(x), torch.empty_like(x)
    center = torch.zeros_like(r) if mean is None else mean
    _norm_backward.for_device_of(x)(
        rms, x.data_ptr(), grad.data_ptr(), _data_ptr_or_zero(weight), center.data_ptr(), r.data_ptr(), out.data_ptr(),
        terms.data_ptr(), num_rows, row_length, groups, values_per_weight,
    )  # fmt: skip
    return out, terms


def _require_and_cast_to_opmath(operator: str, x: torch.Tensor, *others: OptionalTensor) -> list[OptionalTensor]:
    dtype = require_opmath_dtype(operator, x)
    return [
        detach_cast_contiguous(x, dtype),
        *[None if each is None else detach_cast_contiguous(each, dtype) for each in others],
    ]


def _weight_or_ones_for_bias(weight: OptionalTensor, bias: OptionalTensor) -> OptionalTensor:
    """The rows' kernels take a bias with a weight alone: ones, which change nothing."""
    return torch.ones_like(bias) if weight is None and bias is not None else weight


def _flatten_stats(stats: torch.Tensor) -> torch.Tensor:
    """What a kernel reads of each row: float32 or float64, side by side."""
    flat = stats.reshape(-1)
    return detach_cast_contiguous(flat, flat.dtype if flat.dtype is torch.float64 else torch.float32)


def _stats_shape(x: torch.Tensor, normalized_shape: Sequence[int]) -> tuple[int, ...]:
    """The shape of x with the normalised dimensions as ones."""
    return (*x.shape[: x.ndim - len(normalized_shape)], *[1] * len(normalized_shape))


def layer_norm(
    x: torch.Tensor,
    normalized_shape: Sequence[int],
    weight: OptionalTensor = None,
    bias: OptionalTensor = None,
    eps: float = 1e-5,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """y; and of each row the mean and 1/sqrt(v + eps) in float32, with the normalised dimensions as ones.

    `normalized_shape`: the last dimensions of x, over which a row runs; weight and bias have it too.
    """
    wide, w, b = _require_and_cast_to_opmath("layer_norm", x, _weight_or_ones_for_bias(weight, bias), bias)
    assert wide is not None
    y, mean, r = _normalize_rows(wide, w, b, eps, False, _stats_shape(x, normalized_shape), math.prod(normalized_shape))
    return y if y.dtype == x.dtype else y.to(x.dtype), mean, r


def layer_norm_backward(
    grad: torch.Tensor, x: torch.Tensor, normalized_shape: Sequence[int], mean: torch.Tensor, rstd: torch.Tensor,
    weight: OptionalTensor = None,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:  # fmt: skip
    """The gradients of x, weight and bias; mean and rstd as `layer_norm` gave them."""
    g, given, w = _require_and_cast_to_opmath("layer_norm", grad, x, weight)
    assert g is not None and given is not None
    stats = _flatten_stats(mean), _flatten_stats(rstd)
    return _normalize_rows_backward_with_weight(g, given, w, *stats, normalized_shape, x.dtype)


def _normalize_rows_backward_with_weight(
    grad: torch.Tensor, x: torch.Tensor, weight: OptionalTensor, mean: OptionalTensor, rstd: torch.Tensor,
    normalized_shape: Sequence[int], dtype: torch.dtype,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:  # fmt: skip
    """The gradients of x, weight and bias, where all rows have the same weights. `mean` is None for rms norm."""
    n = math.prod(normalized_shape)
    require_numel("input", x, rstd.numel() * n)
    require_numel("grad", grad, rstd.numel() * n)
    require_numel("weight", weight, n)
    require_numel("mean", mean, rstd.numel())
    if x.dtype is torch.float64 or not library.uses_native_kernels(x):
        out, terms = _rows_backward_and_weight_grad_terms(grad, x, weight, mean, rstd, n)
        return out.to(dtype), *_sum_weight_and_bias_gradients(terms, grad, normalized_shape, dtype)
    out = torch.empty_like(x)
    of_weight, of_bias = x.new_empty(tuple(normalized_shape)), x.new_empty(tuple(normalized_shape))
    center = torch.zeros_like(rstd) if mean is None else mean
    status = _norm_backward_with_weight.for_device_of(x)(
        mean is None, x.data_ptr(), grad.data_ptr(), _data_ptr_or_zero(weight), center.data_ptr(), rstd.data_ptr(),
        out.data_ptr(), of_weight.data_ptr(), of_bias.data_ptr(), rstd.numel(), n,
    )  # fmt: skip
    _raise_if_out_of_memory(status, x)
    return out.to(dtype), of_weight.to(dtype), of_bias.to(dtype)


def _raise_if_out_of_memory(status: int, x: torch.Tensor) -> None:
    if status != DONE:
        raise MemoryError(f"no memory for the sums of a norm of {x.numel()} values")


def _sum_weight_and_bias_gradients(
    terms: torch.Tensor, grad: torch.Tensor, normalized_shape: Sequence[int], dtype: torch.dtype
) -> tuple[torch.Tensor, torch.Tensor]:
    flat = [
        each.reshape(math.prod(each.shape[: each.ndim - len(normalized_shape)]), *normalized_shape)
        for each in (terms, grad)
    ]
    of_weight, of_bias = (sums.sum(each, 0).to(dtype) for each in flat)
    return of_weight, of_bias


def rms_norm(
    x: torch.Tensor, normalized_shape: Sequence[int], weight: OptionalTensor = None, eps: float | None = None
) -> tuple[torch.Tensor, torch.Tensor]:
    """(x*r)*w with r = 1/sqrt(mean(x*x) + eps), and r in float32. eps None: that of float32, 2^-23."""
    wide, w = _require_and_cast_to_opmath("rms_norm", x, weight)
    assert wide is not None
    eps = 2.0**-23 if eps is None else eps
    stats = _stats_shape(x, normalized_shape)
    y, _, r = _normalize_rows(wide, w, None, eps, True, stats, math.prod(normalized_shape))
    return y.to(x.dtype), r


def rms_norm_backward(
    grad: torch.Tensor,
    x: torch.Tensor,
    normalized_shape: Sequence[int],
    rstd: torch.Tensor,
    weight: OptionalTensor = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """The gradients of x and weight: h = grad*w, y = x*r, (h - y*mean(h*y)) * r."""
    g, given, w = _require_and_cast_to_opmath("rms_norm", grad, x, weight)
    assert g is not None and given is not None
    return _normalize_rows_backward_with_weight(g, given, w, None, _flatten_stats(rstd), normalized_shape, x.dtype)[:2]


def group_norm(
    x: torch.Tensor, groups: int, weight: OptionalTensor = None, bias: OptionalTensor = None, eps: float = 1e-5
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """y of x [N, C, ...], and mean and 1/sqrt(v + eps) as float32 [N, groups]. C is a multiple of `groups`."""
    wide, w, b = _require_and_cast_to_opmath("group_norm", x, _weight_or_ones_for_bias(weight, bias), bias)
    assert wide is not None
    inner = math.prod(x.shape[2:])
    stats = (x.shape[0], groups)
    y, mean, r = _normalize_rows(wide, w, b, eps, False, stats, x.shape[1] // groups * inner, groups, inner)
    return y.to(x.dtype), mean, r


def group_norm_backward(
    grad: torch.Tensor,
    x: torch.Tensor,
    groups: int,
    mean: torch.Tensor,
    rstd: torch.Tensor,
    weight: OptionalTensor = None,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The gradients of x, weight and bias; mean and rstd as `group_norm` gave them."""
    g, given, w = _require_and_cast_to_opmath("group_norm", grad, x, weight)
    assert g is not None and given is not None
    inner = math.prod(x.shape[2:])
    out, terms = _rows_backward_and_weight_grad_terms(
        g, given, w, _flatten_stats(mean), _flatten_stats(rstd), x.shape[1] // groups * inner, groups, inner
    )
    of_weight, of_bias = (sums.sum(each.reshape(*x.shape[:2], inner), (0, 2)).to(x.dtype) for each in (terms, g))
    return out.to(x.dtype), of_weight, of_bias


def _broadcast_channels(values: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    return values.reshape(1, -1, *[1] * (like.ndim - 2))


def _reciprocal_root(v: torch.Tensor, eps: float) -> torch.Tensor:
    """1 / sqrt(v + eps)."""
    return torch.ones_like(v) / sqrt(v + torch.full_like(v, eps))


def mean_and_rstd_from_running(
    running_mean: torch.Tensor, running_var: torch.Tensor, eps: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """The mean and 1/sqrt(v + eps) that `batch_norm` uses outside training, float32 or float64 [C]."""
    dtype = require_opmath_dtype("batch_norm", running_mean)
    return running_mean.to(dtype), _reciprocal_root(running_var.to(dtype), eps)


def batch_norm(
    x: torch.Tensor, weight: OptionalTensor = None, bias: OptionalTensor = None, running_mean: OptionalTensor = None,
    running_var: OptionalTensor = None, training: bool = True, momentum: float = 0.1, eps: float = 1e-5,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:  # fmt: skip
    """y of x [N, C, ...], and the mean and 1/sqrt(v + eps) used, float32 [C].

    In training the running values become running*(1 - momentum) + value*momentum, in place, with the variance
    over n - 1; else they are used instead of the batch's.
    """
    wide, w, b = _require_and_cast_to_opmath("batch_norm", x, weight, bias)
    assert wide is not None
    over = [dim for dim in range(x.ndim) if dim != 1]
    for name, values in (("weight", w), ("bias", b), ("running_mean", running_mean), ("running_var", running_var)):
        require_numel(name, values, x.shape[1])
    if training:
        n = x.numel() // max(x.shape[1], 1)
        mean = sums.mean(wide, over)
        squares = sums.tree_sum("square_from_center", wide, over, mean)
        v = squares / torch.full_like(squares, n)
        for running, value in ((running_mean, mean), (running_var, squares / torch.full_like(squares, n - 1))):
            if running is not None:
                kept = running.to(value.dtype) * torch.full_like(value, 1 - momentum)
                running.copy_(kept + value * torch.full_like(value, momentum))
    else:
        if running_mean is None or running_var is None:
            raise RuntimeError("Expected running_mean and running_var to be defined when training=False")
        mean, v = running_mean.to(wide.dtype), running_var.to(wide.dtype)
    r = _reciprocal_root(v, eps)
    if wide.dtype is torch.float32 and library.uses_native_kernels(x):
        y, center = torch.empty_like(wide), detach_cast_contiguous(mean, torch.float32)
        _channels.for_device_of(x)(
            wide.data_ptr(), _data_ptr_or_zero(w), _data_ptr_or_zero(b), center.data_ptr(), r.data_ptr(), y.data_ptr(),
            *x.shape[:2],
            math.prod(x.shape[2:]),
        )  # fmt: skip
        return y.to(x.dtype), mean, r
    y = (wide - _broadcast_channels(mean, x)) * _broadcast_channels(r, x)
    if w is not None:
        y = y * _broadcast_channels(w, x)
    if b is not None:
        y = y + _broadcast_channels(b, x)
    return y.to(x.dtype), mean, r


def batch_norm_backward(
    grad: torch.Tensor, x: torch.Tensor, mean: torch.Tensor, rstd: torch.Tensor, weight: OptionalTensor = None,
    training: bool = True,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:  # fmt: skip
    """The gradients of x, weight and bias; mean and rstd as `batch_norm` gave them.

    In training ((h - mean(h)) - y*mean(h*y)) * r with h = grad*w; else h * r.
    """
    g, given, w = _require_and_cast_to_opmath("batch_norm", grad, x, weight)
    assert g is not None and given is not None
    if g.dtype is torch.float32 and library.uses_native_kernels(x) and x.numel():
        return _batch_norm_backward_native(g, given, w, mean, rstd, training, x.dtype)
    over = [dim for dim in range(x.ndim) if dim != 1]
    y = (given - _broadcast_channels(mean, x)) * _broadcast_channels(rstd, x)
    h = g if w is None else g * _broadcast_channels(w, x)
    terms = g * y
    if training:
        center, slope = sums.mean(h, over), sums.mean(h * y, over)
        h = (h - _broadcast_channels(center, x)) - y * _broadcast_channels(slope, x)
    out = h * _broadcast_channels(rstd, x)
    return out.to(x.dtype), sums.sum(terms, over).to(x.dtype), sums.sum(g, over).to(x.dtype)


def _batch_norm_backward_native(
    grad: torch.Tensor, x: torch.Tensor, weight: OptionalTensor, mean: torch.Tensor, rstd: torch.Tensor, training: bool,
    dtype: torch.dtype,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:  # fmt: skip
    """`batch_norm_backward` by the C library."""
    images, channels = x.shape[:2]
    require_numel("grad", grad, x.numel())
    for name, values in (("weight", weight), ("mean", mean), ("rstd", rstd)):
        require_numel(name, values, channels)
    out, of_weight, of_bias = torch.empty_like(x), x.new_empty(channels), x.new_empty(channels)
    center, r = detach_cast_contiguous(mean, torch.float32), detach_cast_contiguous(rstd, torch.float32)
    status = _channels_backward.for_device_of(x)(
        training, x.data_ptr(), grad.data_ptr(), _data_ptr_or_zero(weight), center.data_ptr(), r.data_ptr(),
        out.data_ptr(),
        of_weight.data_ptr(), of_bias.data_ptr(), images, channels, math.prod(x.shape[2:]),
    )  # fmt: skip
    _raise_if_out_of_memory(status, x)
    return out.to(dtype), of_weight.to(dtype), of_bias.to(dtype)

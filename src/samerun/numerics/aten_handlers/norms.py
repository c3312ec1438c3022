"""Layer, group, batch and rms norm, and their gradients, as torch calls them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from samerun.numerics.aten_handlers.declare import HALF_TYPES, Members, widen_half_inputs
from samerun.numerics.kernels import norms as kernels
from samerun.numerics.kernels import sums
from samerun.numerics.kernels.elementwise import sqrt

OptionalTensors = tuple[Tensor | None, ...]


def _none_for_unrequested_gradients(gradients: Sequence[Tensor], output_mask: Sequence[bool]) -> OptionalTensors:
    return tuple(each if wanted else None for each, wanted in zip(gradients, output_mask, strict=True))


def _statistics_in_torchs_dtype(x: Tensor, weight: Tensor | None, statistics: Tensor) -> Tensor:
    """torch's CPU kernels keep them in the type of x; where weights are float32, and on CUDA, in float32."""
    return _round_as_on_cpu(x, weight, statistics)[0] if x.is_cpu else statistics


def _round_as_on_cpu(x: Tensor, weight: Tensor | None, *statistics: Tensor) -> list[Tensor]:
    """What the backward pass of the CPU reads, so that a CUDA device gives the same gradients."""
    if x.dtype not in HALF_TYPES or (weight is not None and weight.dtype is not x.dtype):
        return [*statistics]
    return [each.to(x.dtype) for each in statistics]


def layer_norm(
    x: Tensor, normalized_shape: Sequence[int], weight: Tensor | None, bias: Tensor | None, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    y, *statistics = kernels.layer_norm(x, normalized_shape, weight, bias, eps)
    mean, rstd = (_statistics_in_torchs_dtype(x, weight, each) for each in statistics)
    return y, mean, rstd


def layer_norm_backward(
    grad: Tensor,
    x: Tensor,
    normalized_shape: Sequence[int],
    mean: Tensor,
    rstd: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    output_mask: Sequence[bool],
) -> OptionalTensors:
    mean, rstd = _round_as_on_cpu(x, weight, mean, rstd)
    return _none_for_unrequested_gradients(
        kernels.layer_norm_backward(grad, x, normalized_shape, mean, rstd, weight), output_mask
    )


def group_norm(
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    batch_size: int,
    channels: int,
    spatial_numel: int,
    groups: int,
    eps: float,
) -> tuple[Tensor, Tensor, Tensor]:
    if x.shape[0] != batch_size or x.shape[1] != channels or x.numel() != batch_size * channels * spatial_numel:
        x = x.reshape(batch_size, channels, spatial_numel)
    y, *statistics = kernels.group_norm(x, groups, weight, bias, eps)
    mean, rstd = (_statistics_in_torchs_dtype(x, weight, each) for each in statistics)
    return y, mean, rstd


def group_norm_backward(
    grad: Tensor,
    x: Tensor,
    mean: Tensor,
    rstd: Tensor,
    weight: Tensor | None,
    batch_size: int,
    channels: int,
    spatial_numel: int,
    groups: int,
    output_mask: Sequence[bool],
) -> OptionalTensors:
    mean, rstd = _round_as_on_cpu(x, weight, mean, rstd)
    return _none_for_unrequested_gradients(
        kernels.group_norm_backward(grad, x, groups, mean, rstd, weight), output_mask
    )


def batch_norm_backward(
    grad: Tensor,
    x: Tensor,
    weight: Tensor | None,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    mean: Tensor,
    rstd: Tensor,
    training: bool,
    eps: float,
    output_mask: Sequence[bool],
) -> OptionalTensors:
    """m and r are what the forward pass used: of the batch in training, else of the running values."""
    if not training and running_mean is not None and running_var is not None:
        mean, rstd = kernels.mean_and_rstd_from_running(running_mean, running_var, eps)
    else:
        mean, rstd = _round_as_on_cpu(x, weight, mean, rstd)
    return _none_for_unrequested_gradients(
        kernels.batch_norm_backward(grad, x, mean, rstd, weight, training), output_mask
    )


def batch_norm(
    x: Tensor, weight: Tensor | None, bias: Tensor | None, running_mean: Tensor | None, running_var: Tensor | None,
    training: bool, momentum: float, eps: float,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    y, *statistics = kernels.batch_norm(x, weight, bias, running_mean, running_var, training, momentum, eps)
    if not training and x.is_cpu:
        statistics = [each.new_empty(0) for each in statistics]
    mean, rstd = (_statistics_in_torchs_dtype(x, weight, each) for each in statistics)
    return y, mean, rstd


def batch_norm_with_update(
    x: Tensor, weight: Tensor | None, bias: Tensor | None, running_mean: Tensor, running_var: Tensor, momentum: float,
    eps: float,
) -> tuple[Tensor, ...]:  # fmt: skip
    found = batch_norm(x, weight, bias, running_mean, running_var, True, momentum, eps)
    return (*found, torch.empty(0, dtype=torch.uint8, device=x.device))


def batch_norm_backward_with_reserve(
    grad: Tensor, x: Tensor, weight: Tensor, running_mean: Tensor | None, running_var: Tensor | None,
    mean: Tensor, rstd: Tensor, update: bool, eps: float, output_mask: Sequence[bool], reserve: Tensor,
) -> tuple[Tensor | None, ...]:  # fmt: skip
    return batch_norm_backward(grad, x, weight, running_mean, running_var, mean, rstd, update, eps, output_mask)


def batch_norm_without_running_stats(
    x: Tensor, weight: Tensor | None, bias: Tensor | None, training: bool, momentum: float, eps: float
) -> Any:
    return batch_norm(x, weight, bias, None, None, training, momentum, eps)


def rms_norm(
    x: Tensor, normalized_shape: Sequence[int], weight: Tensor | None = None, eps: float | None = None
) -> Tensor:
    """r = 1 / sqrt(mean(x * x) + eps), y = (x * r) * weight; in torch's operators, which autograd sees."""
    dims = list(range(x.dim() - len(normalized_shape), x.dim()))
    wide = x.float() if x.dtype in HALF_TYPES else x
    mean = (wide * wide).mean(dims, True)
    r = (mean + (torch.finfo(x.dtype).eps if eps is None else eps)).sqrt().reciprocal()
    y = wide * r if weight is None else (wide * r) * weight
    return y.to(x.dtype)


def _sum_other_dims_keepdim(x: Tensor, dim: int) -> Tensor:
    """Class S over all dimensions but one, which are kept as ones."""
    over = [each for each in range(x.dim()) if each != dim % x.dim()]
    return sums.sum(x, over, True) if over else x


def _require_length_per_slice_and_dtype(v: Tensor, lengths: Tensor, dim: int) -> None:
    size = v.shape[dim] if v.dim() else 1
    if lengths.dtype is not v.dtype:
        raise RuntimeError(f"expected scalar type {v.dtype} but found {lengths.dtype}")
    if lengths.numel() != size:
        raise RuntimeError(f"weight_norm: expected {size} lengths, one for each slice of dimension {dim}, "
                           f"got {lengths.numel()}")  # fmt: skip


@widen_half_inputs
def weight_norm(v: Tensor, g: Tensor, dim: int = 0) -> tuple[Tensor, Tensor]:
    """v * (g / n), n = sqrt(sum(v * v)) over all dimensions but dim. Also n."""
    _require_length_per_slice_and_dtype(v, g, dim)
    n = sqrt(_sum_other_dims_keepdim(torch.mul(v, v), dim))
    return torch.mul(v, torch.div(g.reshape(n.shape), n)), n.reshape(g.shape)


@widen_half_inputs
def weight_norm_backward(grad: Tensor, v: Tensor, g: Tensor, norms: Tensor, dim: int) -> tuple[Tensor, Tensor]:
    """s = sum(grad * v); of v: (g / norms) * (grad - v * (s / (norms * norms))); of g: s / norms."""
    for lengths in (g, norms):
        _require_length_per_slice_and_dtype(v, lengths, dim)
    if grad.shape != v.shape:
        raise RuntimeError(f"weight_norm: got a gradient of {list(grad.shape)} for {list(v.shape)}")
    s, shape = _sum_other_dims_keepdim(torch.mul(grad, v), dim), g.shape
    g, norms = g.reshape(s.shape), norms.reshape(s.shape)
    straight = torch.mul(v, torch.div(s, torch.mul(norms, norms)))
    return torch.mul(torch.div(g, norms), torch.sub(grad, straight)), torch.div(s, norms).reshape(shape)


MEMBERS: Members = {
    "aten::native_layer_norm": layer_norm,
    "aten::native_layer_norm_backward": layer_norm_backward,
    "aten::native_group_norm": group_norm,
    "aten::native_group_norm_backward": group_norm_backward,
    "aten::native_batch_norm": batch_norm,
    "aten::_native_batch_norm_legit": batch_norm,
    "aten::_native_batch_norm_legit.no_stats": batch_norm_without_running_stats,
    "aten::native_batch_norm_backward": batch_norm_backward,
    "aten::_batch_norm_with_update": batch_norm_with_update,
    "aten::batch_norm_backward": batch_norm_backward_with_reserve,
    "aten::_weight_norm_interface": weight_norm,
    "aten::_weight_norm_interface_backward": weight_norm_backward,
}
COMPOSED: Members = {"aten::rms_norm": rms_norm}

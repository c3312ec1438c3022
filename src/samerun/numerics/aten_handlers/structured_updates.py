"""Gradients and updates of places that a structure names: diagonals, masks, segments, bins."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import reduce
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from samerun.numerics.aten_handlers.declare import Members, NoPortableKernel, Scalar, to_floating, widen_half_inputs
from samerun.numerics.kernels import ordered_scatter, sums
from samerun.numerics.kernels.elementwise import sqrt
from samerun.numerics.kernels.functions import exp2
from samerun.numerics.kernels.ordered_scatter import index_put, scatter_add, scatter_multiply


def diagonal_backward(grad: Tensor, input_sizes: Sequence[int], offset: int, dim1: int, dim2: int) -> Tensor:
    out = grad.new_zeros(tuple(input_sizes))
    out.diagonal(offset, dim1, dim2).copy_(grad)
    return out


def efficient_zeros_in_memory(size: Sequence[int], **kwargs: Any) -> Tensor:
    """What autograd takes for a gradient of nothing; here in memory."""
    given = {name: kwargs.get(name) for name in ("dtype", "device", "pin_memory")}
    return torch.zeros(tuple(size), **{name: value for name, value in given.items() if value is not None})


def put(x: Tensor, index: Tensor, source: Tensor, accumulate: bool = False) -> Tensor:
    """x as one line, with source at the places of index: added in ascending order of it, or the last one stays."""
    flat = torch.where(index < 0, index + x.numel(), index).reshape(-1)
    outside = (flat < 0) | (flat >= x.numel())
    if source.numel() != index.numel() or source.dtype is not x.dtype or (index.numel() and bool(outside.any())):
        raise RuntimeError(f"put_: {index.numel()} places, {source.numel()} values of {source.dtype}")
    return index_put(x.reshape(-1), [flat], source.reshape(-1), accumulate).reshape(x.shape)


def masked_index_put(x: Tensor, mask: Tensor, indices: Sequence[Tensor | None], values: Tensor) -> Tensor:
    """Values are added in ascending order where mask is true."""
    kept = [None if index is None else torch.where(mask, index, 0) for index in indices]
    given = torch.where(mask.reshape(*mask.shape, *[1] * (values.dim() - mask.dim())), values, 0)
    return index_put(x, kept, given.to(x.dtype), True)


@widen_half_inputs
def renorm(x: Tensor, p: Scalar, dim: int, maxnorm: Scalar) -> Tensor:
    """Each slice along dim whose norm is above maxnorm, times maxnorm / (norm + 1e-7)."""
    if x.dim() < 2 or p <= 0 or maxnorm < 0 or not x.is_floating_point():
        return torch.renorm(x, p, dim, maxnorm)  # torch's own words
    norm = sums.vector_norm(x, float(p), [each for each in range(x.dim()) if each != dim % x.dim()], True)
    factor = torch.div(torch.full_like(norm, float(maxnorm)), torch.add(norm, 1e-7))
    return torch.mul(x, torch.where(norm > maxnorm, factor, torch.ones_like(norm)))


def std_mean(x: Tensor, dim: Any = None, *, correction: Any = None, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    """The square root of the variance, and the mean, each rounded once to the type of x."""
    wide = x if x.dtype in (torch.float32, torch.float64) else x.float()
    variance, mean = sums.var_mean(wide, dim or None, 1 if correction is None else float(correction), keepdim)
    return sqrt(variance).to(x.dtype), mean.to(x.dtype)


@widen_half_inputs
def dist(x: Tensor, y: Tensor, p: Scalar = 2) -> Tensor:
    """The norm of order p of x - y."""
    return sums.vector_norm(torch.sub(to_floating(x), y), float(p))


def ldexp(x: Tensor, exponent: Tensor) -> Tensor:
    """x times 2^exponent, which is rounded to the type of the result first."""
    power = exp2(exponent.to(torch.result_type(to_floating(x), exponent)))
    return torch.mul(x, power)


@widen_half_inputs
def index_reduce(
    x: Tensor, dim: int, index: Tensor, source: Tensor, reduce: str, *, include_self: bool = True
) -> Tensor:
    """As scatter_reduce, of whole slices. The mean: their sum in ascending order / their number."""
    if reduce not in ("prod", "mean", "amax", "amin") or index.dim() > 1 or source.dtype is not x.dtype:
        return torch.index_reduce(x, dim, index, source, reduce, include_self=include_self)  # torch's own words
    if x.dim() == 0:
        found = index_reduce(x.reshape(1), 0, index.reshape(-1), source.reshape(-1), reduce, include_self=include_self)
        return found.reshape(())  # type: ignore[no-any-return]
    at = dim % x.dim()
    lines = index.reshape([-1 if each == at else 1 for each in range(x.dim())]).expand(source.shape).to(torch.int64)
    if reduce == "prod":
        return scatter_multiply(x, dim, lines, source, include_self)
    if reduce != "mean":
        return torch.scatter_reduce(x, dim, lines, source, reduce, include_self=include_self)
    if lines.numel() == 0:
        return x.clone()
    total = scatter_add(x if include_self else x.scatter(dim, lines, 0), dim, lines, source)
    ones = torch.ones_like(x) if include_self else torch.zeros_like(x)
    count = torch.clamp(scatter_add(ones, dim, lines, torch.ones_like(source)), min=1)
    return torch.div(total, count)


def _count_into_bins(x: Tensor, edges: Tensor, weight: Tensor | None, density: bool) -> tuple[Tensor, Tensor]:
    """How many values (or how much weight, in ascending order) lie in [edge, next edge), the last bin closed; over the
    total and the width for a density.
    """
    flat, bins = x.reshape(-1), edges.numel() - 1
    place = torch.searchsorted(edges, flat, right=True) - 1
    place = torch.where(flat == edges[-1], bins - 1, place)
    place = torch.where((place < 0) | (place >= bins) | torch.isnan(flat), bins, place)
    given = torch.ones_like(flat) if weight is None else weight.reshape(-1)
    out = ordered_scatter.index_add(flat.new_zeros(bins + 1), 0, place, given)[:bins]
    if density:
        out = torch.div(out, torch.mul(sums.sum(out), torch.sub(edges[1:], edges[:-1])))
    return out, edges


def histogram_of_edges(
    x: Tensor, bins: Tensor, *, weight: Tensor | None = None, density: bool = False
) -> tuple[Tensor, Tensor]:
    if bins.dim() != 1 or bins.dtype is not x.dtype or (weight is not None and weight.shape != x.shape):
        torch.histogram(x, bins, weight=weight, density=density)  # torch's own words
    return _count_into_bins(x, bins.contiguous(), weight, density)


def histogram(
    x: Tensor, bins: int = 100, *, range: Sequence[float] | None = None, weight: Tensor | None = None,
    density: bool = False,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Edges at low + i * ((high - low) / bins), in float64, rounded once; the last is high."""
    if bins <= 0 or not x.is_floating_point() or (weight is not None and weight.shape != x.shape):
        torch.histogram(x, bins, range=range, weight=weight, density=density)  # torch's own words
    low, high = range or ((float(x.min()), float(x.max())) if x.numel() else (0.0, 0.0))
    if low == high:
        low, high = low - 0.5, high + 0.5
    if not (math.isfinite(low) and math.isfinite(high)):
        raise RuntimeError(f"histogram: range of [{low}, {high}] is not finite")
    edges = torch.arange(bins + 1, dtype=torch.float64) * ((high - low) / bins) + low
    edges[-1] = high
    return _count_into_bins(x, edges.to(x.dtype), weight, density)


def _list_segment_spans(
    data: Tensor, lengths: Tensor | None, offsets: Tensor | None, axis: int
) -> list[tuple[int, ...]]:
    """(line, first, end) of each segment; lines are the positions in the dimensions before axis."""
    if lengths is None and offsets is None:
        raise RuntimeError("segment_reduce: Either lengths or offsets must be defined.")
    if offsets is None:
        assert lengths is not None
        ends = torch.cumsum(lengths, axis).reshape(-1, lengths.shape[axis]).tolist()
        return [(line, i, j) for line, row in enumerate(ends) for i, j in zip([0, *row[:-1]], row, strict=True)]
    rows = offsets.reshape(-1, offsets.shape[axis]).tolist()
    return [(line, i, j) for line, row in enumerate(rows) for i, j in pairwise(row)]


def segment_reduce(
    data: Tensor, reduce: str, *, lengths: Tensor | None = None, indices: Tensor | None = None,
    offsets: Tensor | None = None, axis: int = 0, unsafe: bool = False, initial: Scalar | None = None,
) -> Tensor:  # fmt: skip
    """Of each segment class S of its values (the mean: / their number; prod: the tree of products), or the largest or
    smallest; then with `initial`.
    """
    if indices is not None or reduce not in ("sum", "mean", "max", "min", "prod"):
        raise NoPortableKernel(f"reduce={reduce!r}.")
    shape, before = data.shape, math.prod(data.shape[:axis])
    rows = data.reshape(before, shape[axis], -1)
    empty = {"sum": 0.0, "mean": math.nan, "prod": 1.0, "max": -math.inf, "min": math.inf}[reduce]
    start = {"sum": 0.0, "mean": 0.0, "prod": 1.0, "max": -math.inf, "min": math.inf}[reduce]
    out = []
    for line, i, j in _list_segment_spans(data, lengths, offsets, axis):
        part = rows[line, i:j]
        if i == j:
            out.append(torch.full_like(rows[0, 0], empty if initial is None else float(initial)))
            continue
        kernel: Any = {"sum": sums.sum, "mean": sums.sum, "prod": sums.prod, "max": sums.amax, "min": sums.amin}[reduce]
        found = kernel(part, 0)
        if initial is not None and float(initial) != start:
            first = torch.full_like(found, float(initial))
            combine: Any = {
                "sum": torch.add,
                "mean": torch.add,
                "prod": torch.mul,
                "max": torch.maximum,
                "min": torch.minimum,
            }
            found = combine[reduce](found, first)
        out.append(torch.div(found, torch.full_like(found, float(j - i))) if reduce == "mean" else found)
    count = len(out) // max(before, 1)
    return torch.stack(out).reshape(*shape[:axis], count, *shape[axis + 1 :])


def segment_reduce_backward(
    grad: Tensor, output: Tensor, data: Tensor, reduce: str, *, lengths: Tensor | None = None,
    offsets: Tensor | None = None, axis: int = 0, initial: Scalar | None = None,
) -> Tensor:  # fmt: skip
    """Sum: grad; mean: grad / number; largest: grad shared by those that have it; prod: (grad * output) / value."""
    before = math.prod(data.shape[:axis])
    rows, out = (
        data.reshape(before, data.shape[axis], -1),
        data.new_zeros(before, data.shape[axis], math.prod(data.shape[axis + 1 :])),
    )
    bounds = _list_segment_spans(data, lengths, offsets, axis)
    count = len(bounds) // max(before, 1)
    grads, outputs = (each.reshape(before * count, -1) for each in (grad, output))
    for number, (line, i, j) in enumerate(bounds):
        part, g, y = rows[line, i:j], grads[number], outputs[number]
        if i == j:
            continue
        if reduce == "mean":
            g = torch.div(g, torch.full_like(g, float(j - i)))
        elif reduce in ("max", "min"):
            chosen = (part == y) | (part.isnan() & y.isnan())
            g = torch.where(chosen, torch.div(g, chosen.sum(0).clamp(min=1).to(g.dtype)), 0)
        elif reduce == "prod":
            first = 1.0 if initial is None else float(initial)
            others = [multiply_in_sequence([part[k] for k in range(j - i) if k != at], first, g) for at in range(j - i)]
            g = torch.mul(g, torch.stack(others))
        out[line, i:j] = g
    return out.reshape(data.shape)


def multiply_in_sequence(values: Sequence[Tensor], initial_value: float, like: Tensor) -> Tensor:
    """first times the values, one after the other."""
    return reduce(torch.mul, values, torch.full_like(like, initial_value))


MEMBERS: Members = {
    "aten::diagonal_backward": diagonal_backward,
    "aten::_efficientzerotensor": efficient_zeros_in_memory,
    "aten::put": put,
    "aten::_unsafe_masked_index_put_accumulate": masked_index_put,
    "aten::renorm": renorm,
    "aten::std_mean.correction": std_mean,
    "aten::dist": dist,
    "aten::ldexp.Tensor": ldexp,
    "aten::index_reduce": index_reduce,
    "aten::histogram.bins_tensor": histogram_of_edges,
    "aten::histogram.bin_ct": histogram,
    "aten::segment_reduce": segment_reduce,
    "aten::_segment_reduce_backward": segment_reduce_backward,
}

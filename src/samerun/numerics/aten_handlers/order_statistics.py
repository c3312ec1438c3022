"""Values chosen by their rank or their number: among equal ones the first is meant. Class E: nothing is rounded."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from samerun.numerics.aten_handlers.declare import Members, Scalar
from samerun.numerics.kernels.sums import amax, amin


def _equal_or_both_nan(x: Tensor, value: Tensor) -> Tensor:
    """Where x has the value; a NaN is the same as another."""
    found = x == value
    return found | (torch.isnan(x) & torch.isnan(value)) if x.is_floating_point() else found


def _first_occurrence(x: Tensor, value: Tensor, dim: int, keepdim: bool) -> tuple[Tensor, Tensor]:
    """The first place along dim where x has the value [.., 1, ..], and what stands there."""
    place = torch.argmax(_equal_or_both_nan(x, value).to(torch.uint8), dim, True)
    found = x.gather(dim, place)
    return (found, place) if keepdim else (found.squeeze(dim), place.squeeze(dim))


def _at_least_1d(x: Tensor, dim: int) -> tuple[Tensor, int]:
    return (x.reshape(1), 0) if x.dim() == 0 else (x, dim % x.dim())


def _restore_0d(values_and_indices: tuple[Tensor, Tensor], x: Tensor) -> tuple[Tensor, Tensor]:
    """As they were, for a tensor of no dimension."""
    return (
        (values_and_indices[0].reshape(()), values_and_indices[1].reshape(())) if x.dim() == 0 else values_and_indices
    )


def _make_median_handler(ignore_nan: bool, torch_operator: Any) -> Any:
    def median(x: Tensor, dim: int | None = None, keepdim: bool = False) -> Any:
        """The lower of the two in the middle, of the numbers; `median` is NaN where there is one."""
        if x.numel() == 0 or x.dtype is torch.bool:
            return torch_operator(x) if dim is None else torch_operator(x, dim, keepdim)
        if dim is None:
            return median(x.reshape(-1), 0)[0]
        _require_dim(x, dim)
        line, over = _at_least_1d(x, dim)
        ordered = torch.sort(line, dim=over, stable=True)[0]
        n, place = line.shape[over], (line.shape[over] - 1) // 2
        value = ordered.narrow(over, place, 1)
        if ignore_nan and x.is_floating_point():
            numbers = torch.sum(torch.isnan(line).logical_not(), over, True)
            value = ordered.gather(over, torch.clamp(numbers - 1, min=0) >> 1)
        elif x.is_floating_point():
            last = ordered.narrow(over, n - 1, 1)
            value = torch.where(torch.isnan(last), last, value)
        return _restore_0d(_first_occurrence(line, value, over, keepdim), x)

    return median


def _require_dim(x: Tensor, dim: int) -> None:
    """torch's own IndexError."""
    most = max(x.dim(), 1)
    if not -most <= dim < most:
        torch.sum(x, dim)


def kthvalue(x: Tensor, k: int, dim: int = -1, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    """The k-th smallest; a NaN is larger than every number."""
    _require_dim(x, dim)
    line, over = _at_least_1d(x, dim)
    if x.numel() == 0 or x.dtype is torch.bool or not 1 <= k <= line.shape[over]:
        values, places = torch.kthvalue(x, k, dim, keepdim)
        return values, places
    value = torch.sort(line, dim=over, stable=True)[0].narrow(over, k - 1, 1)
    return _restore_0d(_first_occurrence(line, value, over, keepdim), x)


def mode(x: Tensor, dim: int = -1, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    """What occurs most often, of several the smallest. A NaN is no other's equal."""
    _require_dim(x, dim)
    if x.numel() == 0:
        values, places = torch.mode(x, dim, keepdim)
        return values, places
    line, over = _at_least_1d(x, dim)
    ordered = torch.sort(line, dim=over, stable=True)[0].movedim(over, -1)
    n = ordered.shape[-1]
    place = torch.arange(n, device=x.device).expand(ordered.shape)
    starts = place.clone()
    starts[..., 1:] = torch.where(ordered[..., 1:] == ordered[..., :-1], 0, place[..., 1:])
    run = torch.sub(place, torch.cummax(starts, -1)[0])
    value = ordered.gather(-1, torch.argmax(run, -1, True)).movedim(-1, over)
    return _restore_0d(_first_occurrence(line, value, over, keepdim), x)


def histc(x: Tensor, bins: int = 100, low: Scalar = 0, high: Scalar = 0) -> Tensor:
    """How many values fall into each bin: floor(((x - low) * bins) / (high - low)), the last bin closed; low and high
    are rounded to the type of x. Others and NaN are not counted. Where low equals high, they are those of x.
    """
    if not x.is_floating_point() or bins <= 0 or low > high:
        return torch.histc(x, bins, low, high)  # torch's own words
    flat = x.reshape(-1)
    given = flat.float() if x.dtype not in (torch.float32, torch.float64) else flat
    low, high = float(low), float(high)
    if low == high and flat.numel():
        low, high = float(amin(given)), float(amax(given))
    if low == high:
        low, high = low - 1, high + 1
    if not (math.isfinite(low) and math.isfinite(high)):
        raise RuntimeError(f"torch.histc: range of [{low}, {high}] is not finite")
    first, last = (torch.full((), each, dtype=given.dtype, device=x.device) for each in (low, high))
    scaled = torch.div(torch.mul(torch.sub(given, first), bins), torch.sub(last, first))
    inside = (given >= first) & (given <= last)
    place = torch.where(inside, torch.floor(scaled), 0).to(torch.int64)
    place = torch.where(inside, torch.clamp(place, 0, bins - 1), bins)
    counts = torch.zeros(bins + 1, dtype=torch.int64, device=x.device)
    return counts.index_add_(0, place, torch.ones_like(place))[:bins].to(x.dtype)


def allclose(x: Tensor, y: Tensor, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False) -> bool:
    """Whether `isclose` is true of all: |x - y| <= atol + |rtol * y|."""
    return bool(torch.isclose(x, y, rtol, atol, equal_nan).all())


MEMBERS: Members = {
    "aten::median": _make_median_handler(False, torch.median),
    "aten::nanmedian": _make_median_handler(True, torch.nanmedian),
    "aten::kthvalue": kthvalue,
    "aten::mode": mode,
    "aten::histc": histc,
}
COMPOSED: Members = {"aten::allclose": allclose}

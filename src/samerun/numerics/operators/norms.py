"""Layer, group, batch and rms norm, and their gradients: d = x - mean, v = mean(d * d), y = (d * r) * w + b."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from samerun.numerics import sums
from samerun.numerics.operators.declare import NARROW, Members, widened


def _statistics(x: Tensor, dims: list[int], eps: float) -> tuple[Tensor, Tensor, Tensor]:
    """The mean, v = mean(d * d) and r = 1 / sqrt(v + eps), with the reduced dimensions kept."""
    v, m = sums.var_mean(x, dims, 0, True)
    return m, v, _inverse(v, eps)


def _inverse(v: Tensor, eps: float) -> Tensor:
    return torch.reciprocal(torch.sqrt(torch.add(v, eps)))


def _affine(y: Tensor, w: Tensor | None, b: Tensor | None) -> Tensor:
    if w is not None:
        y = torch.mul(y, w)
    return y if b is None else torch.add(y, b)


def _backward(g: Tensor, xhat: Tensor, r: Tensor, dims: list[int]) -> Tensor:
    """((g - mean(g)) - xhat * mean(g * xhat)) * r."""
    centered = torch.sub(g, sums.mean(g, dims, True))
    along = sums.mean(torch.mul(g, xhat), dims, True)
    return torch.mul(torch.sub(centered, torch.mul(xhat, along)), r)


@widened
def layer_norm(
    x: Tensor, shape: Sequence[int], w: Tensor | None, b: Tensor | None, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    dims = list(range(x.dim() - len(shape), x.dim()))
    m, _, r = _statistics(x, dims, eps)
    return _affine(torch.mul(torch.sub(x, m), r), w, b), m, r


@widened
def layer_norm_backward(
    g: Tensor,
    x: Tensor,
    shape: Sequence[int],
    m: Tensor,
    r: Tensor,
    w: Tensor | None,
    b: Tensor | None,
    mask: Sequence[bool],
) -> tuple[Tensor | None, ...]:
    kept = x.dim() - len(shape)
    rows, dims = list(range(kept)), list(range(kept, x.dim()))
    xhat = torch.mul(torch.sub(x, m), r)
    of_x = of_w = of_b = None
    if mask[0]:
        of_x = _backward(g if w is None else torch.mul(g, w), xhat, r, dims)
    if mask[1] and w is not None:
        of_w = _over(torch.mul(g, xhat), rows)
    if mask[2] and b is not None:
        of_b = _over(g, rows)
    return of_x, of_w, of_b


def _over(x: Tensor, dims: list[int]) -> Tensor:
    return sums.sum(x, dims) if dims else x.clone()


def _grouped(x: Tensor, groups: int) -> Tensor:
    return x.reshape(x.shape[0], groups, -1)


def _channels(w: Tensor | None, dims: int) -> Tensor | None:
    return None if w is None else w.view(1, -1, *[1] * (dims - 2))


@widened
def group_norm(
    x: Tensor, w: Tensor | None, b: Tensor | None, n: int, c: int, pixels: int, groups: int, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    rows = _grouped(x, groups)
    m, _, r = _statistics(rows, [2], eps)
    y = torch.mul(torch.sub(rows, m), r).reshape(x.shape)
    return _affine(y, _channels(w, x.dim()), _channels(b, x.dim())), m[:, :, 0], r[:, :, 0]


@widened
def group_norm_backward(
    g: Tensor,
    x: Tensor,
    m: Tensor,
    r: Tensor,
    w: Tensor | None,
    n: int,
    c: int,
    pixels: int,
    groups: int,
    mask: Sequence[bool],
) -> tuple[Tensor | None, ...]:
    xhat = torch.mul(torch.sub(_grouped(x, groups), m[:, :, None]), r[:, :, None])
    others = [0, *range(2, x.dim())]
    of_x = of_w = of_b = None
    if mask[0]:
        weighted = g if w is None else torch.mul(g, _channels(w, x.dim()))  # type: ignore[arg-type]
        of_x = _backward(_grouped(weighted, groups), xhat, r[:, :, None], [2]).reshape(x.shape)
    if mask[1]:
        of_w = sums.sum(torch.mul(g, xhat.reshape(x.shape)), others)
    if mask[2]:
        of_b = sums.sum(g, others)
    return of_x, of_w, of_b


@widened
def batch_norm(
    x: Tensor,
    w: Tensor | None,
    b: Tensor | None,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    training: bool,
    momentum: float,
    eps: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """running = running * (1 - momentum) + new * momentum; the new variance is the one divided by n - 1."""
    dims = [0, *range(2, x.dim())]
    if not training:
        m, r = _channels(running_mean, x.dim()), _inverse(_channels(running_var, x.dim()), eps)  # type: ignore[arg-type]
        y = torch.mul(torch.sub(x, m), r)  # type: ignore[arg-type]
        empty = x.new_empty(0)
        return _affine(y, _channels(w, x.dim()), _channels(b, x.dim())), empty, empty
    m, v, r = _statistics(x, dims, eps)
    n = math.prod(x.shape[dim] for dim in dims)
    if running_mean is not None:
        _move(running_mean, m.reshape(-1), momentum)
    if running_var is not None:
        unbiased = torch.div(sums_of_squares(v, n), torch.full((), float(max(n - 1, 0))))
        _move(running_var, unbiased.reshape(-1), momentum)
    y = torch.mul(torch.sub(x, m), r)
    return _affine(y, _channels(w, x.dim()), _channels(b, x.dim())), m.reshape(-1), r.reshape(-1)


def sums_of_squares(v: Tensor, n: int) -> Tensor:
    """v * n."""
    return torch.mul(v, float(n))


def _move(running: Tensor, new: Tensor, momentum: float) -> None:
    running.copy_(torch.add(torch.mul(running, 1 - momentum), torch.mul(new, momentum)))


@widened
def batch_norm_backward(
    g: Tensor,
    x: Tensor,
    w: Tensor | None,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    m: Tensor | None,
    r: Tensor | None,
    training: bool,
    eps: float,
    mask: Sequence[bool],
) -> tuple[Tensor | None, ...]:
    dims = [0, *range(2, x.dim())]
    if training:
        center, inverse = _channels(m, x.dim()), _channels(r, x.dim())
    else:
        center = _channels(running_mean, x.dim())
        inverse = _inverse(_channels(running_var, x.dim()), eps)  # type: ignore[arg-type]
    xhat = torch.mul(torch.sub(x, center), inverse)  # type: ignore[arg-type]
    of_x = of_w = of_b = None
    if mask[0]:
        weighted = g if w is None else torch.mul(g, _channels(w, x.dim()))  # type: ignore[arg-type]
        of_x = _backward(weighted, xhat, inverse, dims) if training else torch.mul(weighted, inverse)  # type: ignore[arg-type]
    if mask[1]:
        of_w = sums.sum(torch.mul(g, xhat), dims)
    if mask[2]:
        of_b = sums.sum(g, dims)
    return of_x, of_w, of_b


def rms_norm(x: Tensor, shape: Sequence[int], w: Tensor | None = None, eps: float | None = None) -> Tensor:
    """r = 1 / sqrt(mean(x * x) + eps), y = (x * r) * w; in torch's operators, which autograd sees."""
    dims = list(range(x.dim() - len(shape), x.dim()))
    wide = x.float() if x.dtype in NARROW else x
    mean = (wide * wide).mean(dims, True)
    r = (mean + (torch.finfo(x.dtype).eps if eps is None else eps)).sqrt().reciprocal()
    y = wide * r if w is None else (wide * r) * w
    return y.to(x.dtype)


def native_batch_norm_no_stats(
    x: Tensor, w: Tensor | None, b: Tensor | None, training: bool, momentum: float, eps: float
) -> Any:
    return batch_norm(x, w, b, None, None, training, momentum, eps)


MEMBERS: Members = {
    "aten::native_layer_norm": layer_norm,
    "aten::native_layer_norm_backward": layer_norm_backward,
    "aten::native_group_norm": group_norm,
    "aten::native_group_norm_backward": group_norm_backward,
    "aten::native_batch_norm": batch_norm,
    "aten::_native_batch_norm_legit": batch_norm,
    "aten::_native_batch_norm_legit.no_stats": native_batch_norm_no_stats,
    "aten::native_batch_norm_backward": batch_norm_backward,
}
COMPOSED: Members = {"aten::rms_norm": rms_norm}

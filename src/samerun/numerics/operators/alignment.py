"""Connectionist temporal classification: nn.CTCLoss, by its recursions over time (Graves et al. 2006), in logarithms.

A sum of two or three in logarithms is log((exp(a - m) + exp(b - m)) + exp(c - m)) + m, m the largest (0 if that is
-inf). States are blank, label, blank, ..., blank.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from samerun.numerics.kernels import ordered
from samerun.numerics.kernels.functions import exp, log
from samerun.numerics.operators.declare import Members, widened


class _Paths(NamedTuple):
    """What the recursions go by. n sequences, s = 2 * longest target + 1 states."""

    states: Tensor
    """[n, s]: the class of each state."""
    real: Tensor
    """[n, s]: whether the sequence has so many."""
    skips: Tensor
    """[n, s]: whether a path may come from two states before: another label stands there."""
    last: Tensor
    """[n]: the last state."""
    times: Tensor
    """[n]: the length of the input."""


def _lengths(given: Any, device: torch.device) -> Tensor:
    return torch.as_tensor(given, dtype=torch.int64, device=device)


def _fits(x: Tensor, targets: Tensor, times: Tensor, sizes: Tensor, blank: int) -> bool:
    if x.dim() != 3 or targets.dim() not in (1, 2) or targets.dtype not in (torch.int32, torch.int64):
        return False
    n, classes = x.shape[1:]
    if not x.is_floating_point() or not 0 <= blank < classes or times.shape != (n,) or sizes.shape != (n,) or n == 0:
        return False
    inside = ((times >= 0) & (times <= x.shape[0]) & (sizes >= 0)).all()
    if targets.dim() == 1:
        inside = inside & (sizes.sum() <= targets.numel())
    elif targets.shape[0] == n:
        inside = inside & (sizes <= targets.shape[1]).all()
    else:
        return False
    return bool(inside)


def _paths(x: Tensor, targets: Tensor, times: Tensor, sizes: Tensor, blank: int) -> _Paths:
    n, device = x.shape[1], x.device
    longest = int(sizes.max())
    at = torch.arange(longest, device=device).expand(n, longest)
    kept = at < sizes[:, None]
    if targets.dim() == 1:
        place = at + torch.sub(torch.cumsum(sizes, 0), sizes)[:, None]
        flat = targets.to(torch.int64)
        labels = flat[torch.where(kept, place, 0)] if flat.numel() else at
    else:
        labels = targets[:, :longest].to(torch.int64)
    labels = torch.where(kept, labels, blank)
    if labels.numel() and not bool(((labels >= 0) & (labels < x.shape[2])).all()):
        raise RuntimeError(f"ctc_loss: a target is not between 0 and {x.shape[2] - 1}")
    states = torch.full((n, 2 * longest + 1), blank, dtype=torch.int64, device=device)
    states[:, 1::2] = labels
    real = torch.arange(2 * longest + 1, device=device) <= 2 * sizes[:, None]
    skips = torch.zeros(states.shape, dtype=torch.bool, device=device)
    skips[:, 2:] = states[:, 2:] != states[:, :-2]
    return _Paths(states, real, skips, 2 * sizes, times)


def _together(*given: Tensor) -> Tensor:
    """Their sum, in logarithms."""
    m = given[0]
    for each in given[1:]:
        m = torch.maximum(m, each)
    m = torch.where(m == -torch.inf, torch.zeros_like(m), m)
    total = exp(torch.sub(given[0], m))
    for each in given[1:]:
        total = torch.add(total, exp(torch.sub(each, m)))
    return torch.add(log(total), m)


def _shifted(x: Tensor, by: int) -> Tensor:
    """x [n, s] moved by some states up (down if negative); -inf comes in."""
    out = torch.full_like(x, -torch.inf)
    if abs(by) < x.shape[1]:
        if by > 0:
            out[:, by:] = x[:, :-by]
        else:
            out[:, :by] = x[:, -by:]
    return out


def _emitted(x: Tensor, paths: _Paths) -> Tensor:
    """[t, n, s]: the logarithm of the probability of each state's class."""
    return x.gather(2, paths.states.expand(x.shape[0], -1, -1))


@widened
def ctc_loss(
    x: Tensor, targets: Tensor, input_lengths: Any, target_lengths: Any, blank: int = 0, zero_infinity: bool = False
) -> tuple[Tensor, Tensor]:
    """x [t, n, classes]. alpha[t, s] = (alpha[t-1, s] + alpha[t-1, s-1] + alpha[t-1, s-2], the last where it may
    skip) + x[t, class of s]; the loss is minus the sum of the last two states at the last time. Also alpha [n, t, s].
    """
    times, sizes = (_lengths(each, x.device) for each in (input_lengths, target_lengths))
    if not _fits(x, targets, times, sizes, blank):
        torch._ctc_loss(x, targets, input_lengths, target_lengths, blank, zero_infinity)  # torch's own words
        raise RuntimeError("ctc_loss: lengths and targets do not fit the input")
    paths = _paths(x, targets, times, sizes, blank)
    nothing = torch.full(paths.states.shape, -torch.inf, dtype=x.dtype, device=x.device)
    first = torch.arange(paths.states.shape[1], device=x.device) < 2
    alpha, steps = nothing, []
    for t, step in enumerate(_emitted(x, paths).unbind(0)):
        if t == 0:
            alpha = torch.where(first & paths.real, step, nothing)
        else:
            skipped = torch.where(paths.skips, _shifted(alpha, 2), nothing)
            alpha = torch.add(_together(alpha, _shifted(alpha, 1), skipped), step)
            alpha = torch.where(paths.real, alpha, nothing)
        steps.append(alpha)
    whole = torch.stack(steps, 1) if steps else x.new_empty(x.shape[1], 0, paths.states.shape[1])
    return _loss(whole, paths), whole


def _loss(alpha: Tensor, paths: _Paths) -> Tensor:
    """Without input: 0 if there is no target, else inf."""
    n = alpha.shape[0]
    none = torch.where(paths.last == 0, 0.0, torch.inf).to(alpha.dtype)
    if alpha.shape[1] == 0:
        return none
    ends = alpha[torch.arange(n, device=alpha.device), torch.clamp(paths.times - 1, min=0)]
    final = ends.gather(1, paths.last[:, None])[:, 0]
    before = ends.gather(1, torch.clamp(paths.last - 1, min=0)[:, None])[:, 0]
    before = torch.where(paths.last > 0, before, torch.full_like(before, -torch.inf))
    return torch.where(paths.times > 0, torch.neg(_together(final, before)), none)


@widened
def ctc_loss_backward(
    g: Tensor, x: Tensor, targets: Tensor, input_lengths: Any, target_lengths: Any, loss: Tensor, alpha: Tensor,
    blank: int, zero_infinity: bool = False,
) -> Tensor:  # fmt: skip
    """(exp(x) - exp((q + loss) - x)) * g, q the sum in logarithms over the states of a class, in ascending order, of
    alpha + beta; beta as alpha, backwards. 0 behind the end of an input, and for an infinite loss if so asked.
    """
    times, sizes = (_lengths(each, x.device) for each in (input_lengths, target_lengths))
    paths = _paths(x, targets, times, sizes, blank)
    if x.shape[0] == 0:
        return torch.zeros_like(x)
    nothing = torch.full(paths.states.shape, -torch.inf, dtype=x.dtype, device=x.device)
    state = torch.arange(paths.states.shape[1], device=x.device)
    ends = (state == paths.last[:, None]) | (state == paths.last[:, None] - 1)
    skips = torch.zeros_like(paths.skips)
    skips[:, :-2] = paths.skips[:, 2:]
    beta, steps = nothing, []
    for t, step in reversed(list(enumerate(_emitted(x, paths).unbind(0)))):
        skipped = torch.where(skips, _shifted(beta, -2), nothing)
        going = torch.add(_together(beta, _shifted(beta, -1), skipped), step)
        here = (times - 1)[:, None]
        beta = torch.where(here == t, torch.where(ends, step, nothing), torch.where(here > t, going, nothing))
        beta = torch.where(paths.real, beta, nothing)
        steps.append(beta)
    both = torch.add(alpha.transpose(0, 1), torch.stack(steps[::-1]))
    q = _by_class(both, paths.states, x)
    found = torch.sub(exp(x), exp(torch.sub(torch.add(q, loss[:, None]), x)))
    found = torch.mul(found, g[:, None])
    outside = torch.arange(x.shape[0], device=x.device)[:, None] >= times
    outside = outside | (torch.isinf(loss) & (loss > 0)) if zero_infinity else outside
    return torch.where(outside[..., None], torch.zeros_like(found), found)


def _by_class(both: Tensor, states: Tensor, x: Tensor) -> Tensor:
    """[t, n, s] -> [t, n, classes]: for each class its states together, in ascending order."""
    place = states.expand(both.shape).contiguous()
    m = torch.full(x.shape, -torch.inf, dtype=x.dtype, device=x.device)
    m = torch.scatter_reduce(m, 2, place, both, "amax")
    m = torch.where(m == -torch.inf, torch.zeros_like(m), m)
    terms = exp(torch.sub(both, m.gather(2, place)))
    total = torch.zeros(x.numel(), dtype=x.dtype, device=x.device)
    total = ordered.add_(total, 0, ordered.places(x, 2, place).reshape(-1), terms.reshape(-1))
    return torch.add(log(total.reshape(x.shape)), m)


MEMBERS: Members = {
    "aten::_ctc_loss": ctc_loss,
    "aten::_ctc_loss_backward": ctc_loss_backward,
    "aten::_use_cudnn_ctc_loss": lambda *given: False,
}

"""Connectionist temporal classification: nn.CTCLoss, by its recursions over time (Graves et al. 2006), in logarithms.

A sum of two or three in logarithms is log((exp(a - m) + exp(b - m)) + exp(c - m)) + m, m the largest (0 if that is
-inf). States are blank, label, blank, ..., blank.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from samerun.numerics.aten_handlers.declare import Members, widen_half_inputs
from samerun.numerics.kernels import ordered_scatter
from samerun.numerics.kernels.functions import exp, log


class _StateLattice(NamedTuple):
    """What the recursions go by. n sequences, s = 2 * longest target + 1 states."""

    states: Tensor
    """[n, s]: the class of each state."""
    exists: Tensor
    """[n, s]: whether the sequence has so many."""
    may_skip: Tensor
    """[n, s]: whether a path may come from two states before: another label stands there."""
    last_state: Tensor
    """[n]: the last state."""
    input_sizes: Tensor
    """[n]: the length of the input."""


def _lengths_to_int64(lengths: Any, device: torch.device) -> Tensor:
    return torch.as_tensor(lengths, dtype=torch.int64, device=device)


def _shapes_lengths_and_blank_fit(
    log_probs: Tensor, targets: Tensor, input_sizes: Tensor, target_sizes: Tensor, blank: int
) -> bool:
    if log_probs.dim() != 3 or targets.dim() not in (1, 2) or targets.dtype not in (torch.int32, torch.int64):
        return False
    n, classes = log_probs.shape[1:]
    if not log_probs.is_floating_point() or not 0 <= blank < classes or n == 0:
        return False
    if input_sizes.shape != (n,) or target_sizes.shape != (n,):
        return False
    inside = ((input_sizes >= 0) & (input_sizes <= log_probs.shape[0]) & (target_sizes >= 0)).all()
    if targets.dim() == 1:
        inside = inside & (target_sizes.sum() <= targets.numel())
    elif targets.shape[0] == n:
        inside = inside & (target_sizes <= targets.shape[1]).all()
    else:
        return False
    return bool(inside)


def _check_labels_and_build_lattice(
    log_probs: Tensor, targets: Tensor, input_sizes: Tensor, target_sizes: Tensor, blank: int
) -> _StateLattice:
    n, device = log_probs.shape[1], log_probs.device
    targets = targets.to(device)  # cuDNN takes them from the CPU
    longest = int(target_sizes.max())
    position = torch.arange(longest, device=device).expand(n, longest)
    is_label = position < target_sizes[:, None]
    if targets.dim() == 1:
        flat_position = position + torch.sub(torch.cumsum(target_sizes, 0), target_sizes)[:, None]
        flat = targets.to(torch.int64)
        labels = flat[torch.where(is_label, flat_position, 0)] if flat.numel() else position
    else:
        labels = targets[:, :longest].to(torch.int64)
    labels = torch.where(is_label, labels, blank)
    if labels.numel() and not bool(((labels >= 0) & (labels < log_probs.shape[2])).all()):
        raise RuntimeError(f"ctc_loss: a target is not between 0 and {log_probs.shape[2] - 1}")
    states = torch.full((n, 2 * longest + 1), blank, dtype=torch.int64, device=device)
    states[:, 1::2] = labels
    exists = torch.arange(2 * longest + 1, device=device) <= 2 * target_sizes[:, None]
    may_skip = torch.zeros(states.shape, dtype=torch.bool, device=device)
    may_skip[:, 2:] = states[:, 2:] != states[:, :-2]
    return _StateLattice(states, exists, may_skip, 2 * target_sizes, input_sizes)


def _logsumexp(*terms: Tensor) -> Tensor:
    """Their sum, in logarithms."""
    # m is subtracted so that the largest exponential is 1. Where all terms are -inf, m - m would be NaN: 0 is used.
    m = terms[0]
    for term in terms[1:]:
        m = torch.maximum(m, term)
    m = torch.where(m == -torch.inf, torch.zeros_like(m), m)
    total = exp(torch.sub(terms[0], m))
    for term in terms[1:]:
        total = torch.add(total, exp(torch.sub(term, m)))
    return torch.add(log(total), m)


def _shift_states(x: Tensor, offset: int) -> Tensor:
    """x [n, s] moved by some states up (down if negative); -inf comes in."""
    out = torch.full_like(x, -torch.inf)
    if abs(offset) < x.shape[1]:
        if offset > 0:
            out[:, offset:] = x[:, :-offset]
        else:
            out[:, :offset] = x[:, -offset:]
    return out


def _gather_label_log_probs(log_probs: Tensor, lattice: _StateLattice) -> Tensor:
    """[t, n, s]: the logarithm of the probability of each state's class."""
    return log_probs.gather(2, lattice.states.expand(log_probs.shape[0], -1, -1))


@widen_half_inputs
def ctc_loss(
    log_probs: Tensor,
    targets: Tensor,
    input_lengths: Any,
    target_lengths: Any,
    blank: int = 0,
    zero_infinity: bool = False,
) -> tuple[Tensor, Tensor]:
    """x = log_probs [t, n, classes]. alpha[t, s] = (alpha[t-1, s] + alpha[t-1, s-1] + alpha[t-1, s-2], the last where
    it may skip) + x[t, class of s]; the loss is minus the sum of the last two states at the last time. Also alpha
    [n, t, s].
    """
    input_sizes, target_sizes = (
        _lengths_to_int64(lengths, log_probs.device) for lengths in (input_lengths, target_lengths)
    )
    if not _shapes_lengths_and_blank_fit(log_probs, targets, input_sizes, target_sizes, blank):
        torch._ctc_loss(log_probs, targets, input_lengths, target_lengths, blank, zero_infinity)  # torch's own words
        raise RuntimeError("ctc_loss: lengths and targets do not fit the input")
    lattice = _check_labels_and_build_lattice(log_probs, targets, input_sizes, target_sizes, blank)
    log_zero = torch.full(lattice.states.shape, -torch.inf, dtype=log_probs.dtype, device=log_probs.device)
    first = torch.arange(lattice.states.shape[1], device=log_probs.device) < 2
    alpha, steps = log_zero, []
    for t, step in enumerate(_gather_label_log_probs(log_probs, lattice).unbind(0)):
        if t == 0:
            alpha = torch.where(first & lattice.exists, step, log_zero)
        else:
            skipped = torch.where(lattice.may_skip, _shift_states(alpha, 2), log_zero)
            alpha = torch.add(_logsumexp(alpha, _shift_states(alpha, 1), skipped), step)
            alpha = torch.where(lattice.exists, alpha, log_zero)
        steps.append(alpha)
    all_alpha = torch.stack(steps, 1) if steps else log_probs.new_empty(log_probs.shape[1], 0, lattice.states.shape[1])
    return _loss_from_alpha(all_alpha, lattice), all_alpha


def _loss_from_alpha(alpha: Tensor, lattice: _StateLattice) -> Tensor:
    """Without input: 0 if there is no target, else inf."""
    n = alpha.shape[0]
    loss_without_input = torch.where(lattice.last_state == 0, 0.0, torch.inf).to(alpha.dtype)
    if alpha.shape[1] == 0:
        return loss_without_input
    ends = alpha[torch.arange(n, device=alpha.device), torch.clamp(lattice.input_sizes - 1, min=0)]
    final = ends.gather(1, lattice.last_state[:, None])[:, 0]
    before = ends.gather(1, torch.clamp(lattice.last_state - 1, min=0)[:, None])[:, 0]
    before = torch.where(lattice.last_state > 0, before, torch.full_like(before, -torch.inf))
    return torch.where(lattice.input_sizes > 0, torch.neg(_logsumexp(final, before)), loss_without_input)


@widen_half_inputs
def ctc_loss_backward(
    grad: Tensor, log_probs: Tensor, targets: Tensor, input_lengths: Any, target_lengths: Any, loss: Tensor,
    alpha: Tensor, blank: int, zero_infinity: bool = False,
) -> Tensor:  # fmt: skip
    """(exp(x) - exp((q + loss) - x)) * grad, x = log_probs, q the sum in logarithms over the states of a class, in
    ascending order, of alpha + beta; beta as alpha, backwards. 0 behind the end of an input, and for an infinite loss
    if so asked.
    """
    input_sizes, target_sizes = (
        _lengths_to_int64(lengths, log_probs.device) for lengths in (input_lengths, target_lengths)
    )
    lattice = _check_labels_and_build_lattice(log_probs, targets, input_sizes, target_sizes, blank)
    if log_probs.shape[0] == 0:
        return torch.zeros_like(log_probs)
    log_zero = torch.full(lattice.states.shape, -torch.inf, dtype=log_probs.dtype, device=log_probs.device)
    state = torch.arange(lattice.states.shape[1], device=log_probs.device)
    ends = (state == lattice.last_state[:, None]) | (state == lattice.last_state[:, None] - 1)
    skips = torch.zeros_like(lattice.may_skip)
    skips[:, :-2] = lattice.may_skip[:, 2:]
    beta, steps = log_zero, []
    for t, step in reversed(list(enumerate(_gather_label_log_probs(log_probs, lattice).unbind(0)))):
        skipped = torch.where(skips, _shift_states(beta, -2), log_zero)
        continued = torch.add(_logsumexp(beta, _shift_states(beta, -1), skipped), step)
        last_time = (input_sizes - 1)[:, None]
        beta = torch.where(
            last_time == t, torch.where(ends, step, log_zero), torch.where(last_time > t, continued, log_zero)
        )
        beta = torch.where(lattice.exists, beta, log_zero)
        steps.append(beta)
    alpha_beta = torch.add(alpha.transpose(0, 1), torch.stack(steps[::-1]))
    q = _logsumexp_states_by_class(alpha_beta, lattice.states, log_probs)
    gradient = torch.sub(exp(log_probs), exp(torch.sub(torch.add(q, loss[:, None]), log_probs)))
    gradient = torch.mul(gradient, grad[:, None])
    is_zero = torch.arange(log_probs.shape[0], device=log_probs.device)[:, None] >= input_sizes
    is_zero = is_zero | (torch.isinf(loss) & (loss > 0)) if zero_infinity else is_zero
    return torch.where(is_zero[..., None], torch.zeros_like(gradient), gradient)


# A plain scatter on CUDA adds the states of a class with atomics, whose order changes from run to run. Here they are
# added in ascending order of the states.
def _logsumexp_states_by_class(alpha_beta: Tensor, states: Tensor, log_probs: Tensor) -> Tensor:
    """[t, n, s] -> [t, n, classes]: for each class its states together, in ascending order."""
    class_of_state = states.expand(alpha_beta.shape).contiguous()
    m = torch.full(log_probs.shape, -torch.inf, dtype=log_probs.dtype, device=log_probs.device)
    m = torch.scatter_reduce(m, 2, class_of_state, alpha_beta, "amax")
    m = torch.where(m == -torch.inf, torch.zeros_like(m), m)
    terms = exp(torch.sub(alpha_beta, m.gather(2, class_of_state)))
    total = torch.zeros(log_probs.numel(), dtype=log_probs.dtype, device=log_probs.device)
    total = ordered_scatter.index_add_(
        total,
        0,
        ordered_scatter.check_and_linearize_scatter_indices(log_probs, 2, class_of_state).reshape(-1),
        terms.reshape(-1),
    )
    return torch.add(log(total.reshape(log_probs.shape)), m)


MEMBERS: Members = {
    "aten::_ctc_loss": ctc_loss,
    "aten::_ctc_loss_backward": ctc_loss_backward,
    "aten::_use_cudnn_ctc_loss": lambda *given: False,
}

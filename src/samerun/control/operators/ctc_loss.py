"""The gradient of nn.CTCLoss."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from samerun.control.operators.declare import Kernel, Operator
from samerun.control.operators.segments import summed


def gradient(
    grad: Tensor, log_probs: Tensor, targets: Tensor, input_lengths: Any, target_lengths: Any,
    neg_log_likelihood: Tensor, log_alpha: Tensor, blank: int, zero_infinity: bool = False,
) -> Tensor:  # fmt: skip
    """log_probs: [time, batch, classes]; log_alpha: [batch, time, 2 * longest target + 1], of the forward pass."""
    steps, batch, classes = log_probs.shape
    device = log_probs.device
    length, goal = _lengths(input_lengths, device), _lengths(target_lengths, device)
    labels = _labels(targets, goal, (log_alpha.shape[2] - 1) // 2, blank)
    states = torch.full((batch, log_alpha.shape[2]), blank, dtype=torch.int64, device=device)
    states[:, 1::2] = labels
    seen = log_probs.gather(2, states.expand(steps, -1, -1))
    beta = _backward(seen, states, length, goal, blank)
    inside = torch.arange(steps, device=device).unsqueeze(1) < length
    reached = torch.arange(states.shape[1], device=device) < (2 * goal + 1).unsqueeze(1)
    # The probability of being in each state at each time, given the target.
    share = (log_alpha.transpose(0, 1) + beta - seen + neg_log_likelihood.unsqueeze(1)).exp()
    share = torch.where(inside.unsqueeze(2) & reached & (beta > -math.inf), share, 0)
    expected = _by_class(share[:, :, 1::2], labels, classes)
    expected[:, :, blank] += share[:, :, 0::2].sum(2)
    out = torch.where(log_probs == -math.inf, math.nan, log_probs.exp() - expected)
    lost = neg_log_likelihood == math.inf  # no way through: torch gives NaN, or 0 where it was asked to
    out = torch.where(lost.unsqueeze(1), 0.0 if zero_infinity else math.nan, out * grad.unsqueeze(1))
    return torch.where(inside.unsqueeze(2), out, 0)


def _lengths(given: Any, device: torch.device) -> Tensor:
    return torch.as_tensor(given, dtype=torch.int64, device="cpu" if isinstance(given, list) else None).to(device)


def _labels(targets: Tensor, goal: Tensor, longest: int, blank: int) -> Tensor:
    """int64[batch, longest]: the target of each sequence, filled up with blanks."""
    position = torch.arange(longest, device=goal.device)
    if targets.dim() == 1:  # one behind the other
        first = (torch.cumsum(goal, 0) - goal).unsqueeze(1)
    else:
        first = (torch.arange(goal.numel(), device=goal.device) * targets.shape[1]).unsqueeze(1)
    there = position < goal.unsqueeze(1)
    flat = targets.reshape(-1).to(goal.device, torch.int64)
    if not flat.numel():
        return torch.full_like(there, blank, dtype=torch.int64)
    return torch.where(there, flat[torch.where(there, first + position, 0)], blank)


def _backward(seen: Tensor, states: Tensor, length: Tensor, goal: Tensor, blank: int) -> Tensor:
    """log of the probability of all ways from each state to the end: [time, batch, states]."""
    steps, batch, count = seen.shape
    lowest = torch.full((batch, 2), -math.inf, dtype=seen.dtype, device=seen.device)
    state = torch.arange(count, device=seen.device)
    ends = (state == (2 * goal).unsqueeze(1)) | (state == (2 * goal - 1).unsqueeze(1))
    skips = torch.zeros_like(states, dtype=torch.bool)
    skips[:, :-2] = (states[:, :-2] != blank) & (states[:, :-2] != states[:, 2:])
    now = torch.full((batch, count), -math.inf, dtype=seen.dtype, device=seen.device)
    out: list[Tensor] = []
    for step in range(steps - 1, -1, -1):
        wide = torch.cat([now, lowest], 1)
        ways = torch.stack([now, wide[:, 1 : count + 1], torch.where(skips, wide[:, 2:], -math.inf)])
        best = ways.amax(0)
        best = torch.where(best == -math.inf, 0, best)
        before = (ways - best).exp().sum(0).log() + best
        last = (length - 1 == step).unsqueeze(1)
        now = torch.where(last, torch.where(ends, 0, -math.inf), before) + seen[step]
        out.append(now)
    return torch.stack(out[::-1])


def _by_class(share: Tensor, labels: Tensor, classes: int) -> Tensor:
    """Add up the shares of the states of one class: [time, batch, classes] of [time, batch, labels]."""
    steps, batch, longest = share.shape
    keys = (labels + torch.arange(batch, device=labels.device).unsqueeze(1) * classes).flatten()
    rows = share.permute(1, 2, 0).reshape(batch * longest, steps)
    return summed(keys, rows, batch * classes).view(batch, classes, steps).permute(2, 0, 1).contiguous()


OPERATOR = Operator(
    "ctc_loss",
    ("torch.nn.CTCLoss",),
    "The gradient of nn.CTCLoss.",
    "The recursion over time is done with whole tensors; the states of one class are added in the order of the target.",
    "About a dozen small operators for each step of time, and four tensors of the size [time, batch, 2 * longest"
    " target + 1]; the device is waited for.",
    (Kernel(gradient, ("_ctc_loss_backward", "_ctc_loss_backward.Tensor")),),
)

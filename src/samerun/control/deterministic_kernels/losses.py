"""The gradient of nn.CTCLoss, and nn.NLLLoss of images."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from samerun.control.deterministic_kernels.declare import DeterministicOperator, Kernel, upcast_half_to_float32
from samerun.control.deterministic_kernels.ordered_sums import sum_rows_by_key

NONE, MEAN = 0, 1
Lengths = Tensor | list[int]


def nll_loss2d(
    self: Tensor, target: Tensor, weight: Tensor | None, reduction: int, ignore_index: int
) -> tuple[Tensor, Tensor]:
    """self: [batch, classes, height, width]; target: int[batch, height, width]. Returns loss and weight sum."""
    counted = target != ignore_index
    classes = torch.where(counted, target, 0).to(torch.int64)
    picked = -upcast_half_to_float32(self).gather(1, classes.unsqueeze(1)).squeeze(1)
    if weight is None:
        weights = counted.to(picked.dtype)
    else:
        weights = upcast_half_to_float32(weight).index_select(0, classes.reshape(-1)).view(classes.shape)
        weights = torch.where(counted, weights, 0)
    losses = torch.where(counted, picked * weights, 0)
    if reduction == NONE:
        return losses.to(self.dtype), torch.zeros((), dtype=self.dtype, device=self.device)
    weight_sum = weights.sum()
    loss_sum = losses.sum()
    return (loss_sum / weight_sum if reduction == MEAN else loss_sum).to(self.dtype), weight_sum.to(self.dtype)


def _is_reduced_image_loss(
    self: Tensor, target: Tensor, weight: Tensor | None, reduction: int, ignore_index: int
) -> bool:
    return reduction != NONE and self.dim() == 4 and target.shape == (self.shape[0], *self.shape[2:])


NLL_LOSS2D = DeterministicOperator(
    "nll_loss2d",
    ("torch.nn.NLLLoss",),
    "nn.NLLLoss and nn.CrossEntropyLoss of images, with a mean or a sum.",
    "The losses of all pixels are gathered and weighted, and added by torch's own sum.",
    "Three tensors of the size of the target.",
    (Kernel(nll_loss2d, ("nll_loss2d_forward", "nll_loss2d_forward.output"), applies=_is_reduced_image_loss),),
)


def ctc_loss_backward(
    grad: Tensor, log_probs: Tensor, targets: Tensor, input_lengths: Lengths, target_lengths: Lengths,
    neg_log_likelihood: Tensor, log_alpha: Tensor, blank: int, zero_infinity: bool = False,
) -> Tensor:  # fmt: skip
    """log_probs: [time, batch, classes]; log_alpha: [batch, time, 2 * longest target + 1], of the forward pass."""
    steps, batch, classes = log_probs.shape
    device = log_probs.device
    input_sizes, target_sizes = _to_int64(input_lengths, device), _to_int64(target_lengths, device)
    labels = _pad_targets(targets, target_sizes, (log_alpha.shape[2] - 1) // 2, blank)
    states = torch.full((batch, log_alpha.shape[2]), blank, dtype=torch.int64, device=device)
    states[:, 1::2] = labels
    emissions = log_probs.gather(2, states.expand(steps, -1, -1))
    beta = _ctc_log_beta(emissions, states, input_sizes, target_sizes, blank)
    in_input = torch.arange(steps, device=device).unsqueeze(1) < input_sizes
    in_target = torch.arange(states.shape[1], device=device) < (2 * target_sizes + 1).unsqueeze(1)
    # The probability of being in each state at each time, given the target.
    occupancy = (log_alpha.transpose(0, 1) + beta - emissions + neg_log_likelihood.unsqueeze(1)).exp()
    occupancy = torch.where(in_input.unsqueeze(2) & in_target & (beta > -math.inf), occupancy, 0)
    expected = _sum_states_by_class(occupancy[:, :, 1::2], labels, classes)
    expected[:, :, blank] += occupancy[:, :, 0::2].sum(2)
    out = torch.where(log_probs == -math.inf, math.nan, log_probs.exp() - expected)
    no_path = neg_log_likelihood == math.inf  # no way through: torch gives NaN, or 0 where it was asked to
    out = torch.where(no_path.unsqueeze(1), 0.0 if zero_infinity else math.nan, out * grad.unsqueeze(1))
    return torch.where(in_input.unsqueeze(2), out, 0)


def _to_int64(lengths: Lengths, device: torch.device) -> Tensor:
    return torch.as_tensor(lengths, dtype=torch.int64, device="cpu" if isinstance(lengths, list) else None).to(device)


def _pad_targets(targets: Tensor, target_sizes: Tensor, max_target_size: int, blank: int) -> Tensor:
    """int64[batch, max_target_size]: the target of each sequence, filled up with blanks."""
    position = torch.arange(max_target_size, device=target_sizes.device)
    if targets.dim() == 1:  # one behind the other
        first = (torch.cumsum(target_sizes, 0) - target_sizes).unsqueeze(1)
    else:
        first = (torch.arange(target_sizes.numel(), device=target_sizes.device) * targets.shape[1]).unsqueeze(1)
    is_label = position < target_sizes.unsqueeze(1)
    flat = targets.reshape(-1).to(target_sizes.device, torch.int64)
    if not flat.numel():
        return torch.full_like(is_label, blank, dtype=torch.int64)
    return torch.where(is_label, flat[torch.where(is_label, first + position, 0)], blank)


def _ctc_log_beta(emissions: Tensor, states: Tensor, input_sizes: Tensor, target_sizes: Tensor, blank: int) -> Tensor:
    """The beta of the forward-backward algorithm: [time, batch, states].

    The log of the probability of all paths from each state to the end.
    """
    steps, batch, count = emissions.shape
    lowest = torch.full((batch, 2), -math.inf, dtype=emissions.dtype, device=emissions.device)
    state = torch.arange(count, device=emissions.device)
    ends = (state == (2 * target_sizes).unsqueeze(1)) | (state == (2 * target_sizes - 1).unsqueeze(1))
    skips = torch.zeros_like(states, dtype=torch.bool)
    skips[:, :-2] = (states[:, :-2] != blank) & (states[:, :-2] != states[:, 2:])
    beta = torch.full((batch, count), -math.inf, dtype=emissions.dtype, device=emissions.device)
    out: list[Tensor] = []
    for step in range(steps - 1, -1, -1):
        wide = torch.cat([beta, lowest], 1)
        paths = torch.stack([beta, wide[:, 1 : count + 1], torch.where(skips, wide[:, 2:], -math.inf)])
        best = paths.amax(0)
        best = torch.where(best == -math.inf, 0, best)
        before = (paths - best).exp().sum(0).log() + best
        last = (input_sizes - 1 == step).unsqueeze(1)
        beta = torch.where(last, torch.where(ends, 0, -math.inf), before) + emissions[step]
        out.append(beta)
    return torch.stack(out[::-1])


def _sum_states_by_class(occupancy: Tensor, labels: Tensor, classes: int) -> Tensor:
    """Add up the shares of the states of one class: [time, batch, classes] of [time, batch, labels]."""
    steps, batch, max_target_size = occupancy.shape
    keys = (labels + torch.arange(batch, device=labels.device).unsqueeze(1) * classes).flatten()
    rows = occupancy.permute(1, 2, 0).reshape(batch * max_target_size, steps)
    return sum_rows_by_key(keys, rows, batch * classes).view(batch, classes, steps).permute(2, 0, 1).contiguous()


CTC_LOSS = DeterministicOperator(
    "ctc_loss",
    ("torch.nn.CTCLoss",),
    "The gradient of nn.CTCLoss.",
    "The recursion over time is done with whole tensors; the states of one class are added in the order of the target.",
    "About a dozen small operators for each step of time, and four tensors of the size [time, batch, 2 * longest"
    " target + 1]; the device is waited for.",
    (Kernel(ctc_loss_backward, ("_ctc_loss_backward", "_ctc_loss_backward.Tensor")),),
)

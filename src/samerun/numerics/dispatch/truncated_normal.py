"""`torch.nn.init.trunc_normal_` inside `portable()`: one way to draw, whatever the release of torch.

It is a function of Python, so a dispatch mode sees its operators alone, and releases write it otherwise: torch 2.10
puts uniform numbers through the inverse of the normal distribution, torch 2.13 draws until all numbers lie within the
bounds. The first weights of most vision transformers come from it. Here numbers are drawn as torch 2.13 draws them.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Generator, Tensor

_LEAST_SHARE_WITHIN_BOUNDS = 0.3
"""With less of the normal distribution between the bounds, too many of its numbers would be drawn in vain."""


def draw_truncated_normal(
    tensor: Tensor, mean: float, std: float, a: float, b: float, generator: Generator | None = None
) -> Tensor:
    """Fill `tensor` in place from the normal distribution between `a` and `b`, without gradients; returns it."""
    with torch.no_grad():
        if _share_below(b, mean, std) - _share_below(a, mean, std) > _LEAST_SHARE_WITHIN_BOUNDS:
            return _redraw_normal_until_within(tensor, mean, std, a, b, generator)
        return _rejection_sample_with_uniform_proposal(tensor, mean, std, a, b, generator)


def _share_below(bound: float, mean: float, std: float) -> float:
    return (1 + math.erf((bound - mean) / std / math.sqrt(2))) / 2


def _redraw_normal_until_within(
    tensor: Tensor, mean: float, std: float, a: float, b: float, generator: Generator | None
) -> Tensor:
    low, high = (torch.tensor(bound, dtype=tensor.dtype).item() for bound in (a, b))
    tensor.normal_(mean, std, generator=generator)
    while (outside := (tensor < low) | (tensor > high)).any():
        again = torch.empty_like(tensor).normal_(mean, std, generator=generator)
        tensor.copy_(torch.where(outside, again, tensor))
    return tensor


def _rejection_sample_with_uniform_proposal(
    tensor: Tensor, mean: float, std: float, a: float, b: float, generator: Generator | None
) -> Tensor:
    """A uniform number is taken with the density at it over the density at the highest point between the bounds."""
    log_highest_density = -0.5 * ((max(a, min(mean, b)) - mean) / std) ** 2
    chance = torch.empty_like(tensor)

    def is_refused(numbers: Tensor) -> Tensor:
        log_density = numbers.clone().sub_(mean).div_(std).pow_(2).mul_(-0.5)
        return chance.uniform_(generator=generator).log_() > log_density.sub_(log_highest_density)

    refused = is_refused(tensor.uniform_(a, b, generator=generator))
    while refused.any():
        again = torch.empty_like(tensor).uniform_(a, b, generator=generator)
        tensor.copy_(torch.where(refused, again, tensor))
        refused &= is_refused(again)
    return tensor


def replace_torch_truncated_normal(get_portable_mode: Callable[[], Any]) -> None:
    """Draw so inside `portable()`; outside, where `get_portable_mode()` is None, torch's own function runs."""
    torch_function = torch.nn.init._no_grad_trunc_normal_

    @functools.wraps(torch_function)
    def trunc_normal_(
        tensor: Tensor, mean: float, std: float, a: float, b: float, generator: Generator | None = None
    ) -> Tensor:
        if get_portable_mode() is None or tensor.is_meta or not tensor.is_floating_point():
            return torch_function(tensor, mean, std, a, b, generator=generator)
        return draw_truncated_normal(tensor, mean, std, a, b, generator)

    torch.nn.init._no_grad_trunc_normal_ = trunc_normal_

"""Whole steps of Adam, AdamW and SGD over all parameters, in one call of the C library.

The bits are those of torch.optim's plain loops with the operators of `portable()`, one rounding an operator. Whatever
the kernels do not take is left to those loops.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import pack
from typing import NamedTuple

import torch
from torch import Tensor
from torch.autograd.graph import increment_version

from samerun.numerics.kernels import library

_adam_steps = library.declare_native_function("samerun_adam_steps_unless_own_arrays_overlap", "ipl")
_sgd_steps = library.declare_native_function("samerun_sgd_steps_unless_overlapping", "ipl")
_PLAIN_TYPES = (torch.nn.Parameter, Tensor)


class AdamFactors(NamedTuple):
    """What one parameter's tensors are multiplied with, in the order in which the kernel reads them."""

    decay: float
    """Of the parameter, before anything else."""
    weight_decay: float
    one_minus_beta1: float
    beta2: float
    one_minus_beta2: float
    bias_correction2_sqrt: float
    eps: float
    minus_step_size: float


def _fit_native_optimizer_kernels(tensors: Sequence[Sequence[Tensor]]) -> bool:
    """Whether the kernels take these lists, which have one tensor for each parameter: dense float32 of the CPU."""
    if not library.is_available() or any(len(each) != len(tensors[0]) for each in tensors):
        return False
    for group in zip(*tensors, strict=True):
        shape = group[0].shape
        for x in group:
            if type(x) not in _PLAIN_TYPES or x.dtype is not torch.float32 or not x.is_cpu or x.shape != shape:
                return False
            if x.layout is not torch.strided or not x.is_contiguous() or x.is_neg():
                return False
    return True


def try_bump_autograd_versions(*tensors: Sequence[Tensor]) -> bool:
    """Tell autograd that these are overwritten; False where one is an inference tensor, which has no version."""
    try:
        for each in tensors:
            increment_version(each)
    except RuntimeError:
        return False
    return True


def try_adam_steps(
    params: Sequence[Tensor],
    grads: Sequence[Tensor],
    exp_avgs: Sequence[Tensor],
    exp_avg_sqs: Sequence[Tensor],
    max_exp_avg_sqs: Sequence[Tensor] | None,
    factors: Sequence[AdamFactors],
    *,
    is_coupled: bool,
    maximize: bool,
) -> bool:
    """Take the step, and say so; False, with nothing done, for what the kernel does not take.

    is_coupled: the weight decay is added to the gradient. max_exp_avg_sqs: None without amsgrad.
    """
    written = (params, exp_avgs, exp_avg_sqs, *([] if max_exp_avg_sqs is None else [max_exp_avg_sqs]))
    if not _fit_native_optimizer_kernels((*written, grads)):
        return False
    largest = [0] * len(params) if max_exp_avg_sqs is None else [x.data_ptr() for x in max_exp_avg_sqs]
    try:
        steps = b"".join(
            pack("=6q8f2i", p.data_ptr(), g.data_ptr(), m.data_ptr(), v.data_ptr(), most, p.numel(), *f, is_coupled,
                 maximize)
            for p, g, m, v, most, f in zip(params, grads, exp_avgs, exp_avg_sqs, largest, factors, strict=True)
        )  # fmt: skip
    except OverflowError:  # a number beyond float32
        return False
    return try_bump_autograd_versions(*written) and bool(_adam_steps(steps, len(params)))


def try_sgd_steps(
    params: Sequence[Tensor],
    grads: Sequence[Tensor],
    momentum_buffers: Sequence[Tensor] | None,
    *,
    lr: float,
    weight_decay: float,
    momentum: float,
    dampening: float,
    nesterov: bool,
    maximize: bool,
) -> bool:
    """Take the step, and say so; False, with nothing done, for what the kernel does not take.

    momentum_buffers: None without momentum.
    """
    written = (params, *([] if momentum_buffers is None else [momentum_buffers]))
    if not _fit_native_optimizer_kernels((*written, grads)):
        return False
    buffers = [0] * len(params) if momentum_buffers is None else [x.data_ptr() for x in momentum_buffers]
    try:
        settings = pack("=4f4i", weight_decay, momentum, 1 - dampening, -lr, weight_decay != 0, nesterov, maximize, 0)
    except OverflowError:
        return False
    steps = b"".join(
        pack("=4q", p.data_ptr(), g.data_ptr(), buffer, p.numel()) + settings
        for p, g, buffer in zip(params, grads, buffers, strict=True)
    )
    return try_bump_autograd_versions(*written) and bool(_sgd_steps(steps, len(params)))

"""torch.optim's loops over parameters, inside `portable()` in one call of C where it gives their bits.

A loop calls eight operators or more for each parameter, and each passes the dispatch mode: for small models that is
most of a step. The loops are replaced rather than the optimizers, so that hooks, closures and learning rates see no
difference. Where someone else looks at operators (another mode), or a setting is unusual, torch's own loop runs.
"""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils._mode_utils import no_dispatch

from samerun.numerics.aten_handlers.declare import may_fuse_operators_into_one_c_call
from samerun.numerics.aten_handlers.optimizers import integer_power
from samerun.numerics.kernels.optimizer_steps import (
    AdamFactors,
    try_adam_steps,
    try_bump_autograd_versions,
    try_sgd_steps,
)

_LARGEST_EXACT_STEP = 2.0**24
"""Counters of steps are float32: from here on, adding 1 rounds."""
TryStep = Callable[..., bool]


def _are_numbers(*values: Any) -> bool:
    return all(type(value) is float or type(value) is int for value in values)


def _next_step_counts_and_bump_versions(steps: Sequence[Tensor]) -> list[float] | None:
    """What each counter will be; None where they are not plain counters of their own."""
    if len({id(step) for step in steps}) != len(steps):
        return None
    counts = []
    for step in steps:
        if type(step) is not Tensor or not step.is_cpu or step.dtype is not torch.float32 or step.dim():
            return None
        count = step.item()
        if not (0 <= count < _LARGEST_EXACT_STEP and float(count).is_integer()):
            return None
        counts.append(float(count) + 1)
    return counts if try_bump_autograd_versions(steps) else None


def _try_adam(
    power: Callable[[float, float], float],
    params: Sequence[Tensor],
    grads: Sequence[Tensor],
    exp_avgs: Sequence[Tensor],
    exp_avg_sqs: Sequence[Tensor],
    max_exp_avg_sqs: Sequence[Tensor],
    state_steps: Sequence[Tensor],
    grad_scale: Tensor | None,
    found_inf: Tensor | None,
    *,
    amsgrad: bool,
    has_complex: bool,
    beta1: Any,
    beta2: Any,
    lr: Any,
    weight_decay: Any,
    eps: Any,
    maximize: bool,
    capturable: bool,
    differentiable: bool,
    decoupled_weight_decay: bool,
) -> bool:
    """power: raises beta1 and beta2 to the number of steps; Python's own in the loops, another in the fused form."""
    if capturable or differentiable or has_complex or grad_scale is not None or found_inf is not None:
        return False
    if not _are_numbers(beta1, beta2, lr, weight_decay, eps):
        return False
    counts = _next_step_counts_and_bump_versions(state_steps)
    if counts is None:
        return False
    decay = 1 - lr * weight_decay if decoupled_weight_decay and weight_decay != 0 else 1.0
    factors: dict[float, AdamFactors] = {}
    for count in counts:
        if count not in factors:
            factors[count] = AdamFactors(
                decay, weight_decay, 1 - beta1, beta2, 1 - beta2, (1 - power(beta2, count)) ** 0.5, eps,
                -(lr / (1 - power(beta1, count))),
            )  # fmt: skip
    is_coupled = not decoupled_weight_decay and weight_decay != 0
    done = try_adam_steps(
        params, grads, exp_avgs, exp_avg_sqs, max_exp_avg_sqs if amsgrad else None,
        [factors[count] for count in counts], is_coupled=is_coupled, maximize=maximize,
    )  # fmt: skip
    if done:
        torch._foreach_add_([*state_steps], 1)
    return done


def _try_sgd(
    params: Sequence[Tensor],
    grads: Sequence[Tensor],
    momentum_buffer_list: Sequence[Tensor | None],
    grad_scale: Tensor | None,
    found_inf: Tensor | None,
    *,
    weight_decay: Any,
    momentum: Any,
    lr: Any,
    dampening: Any,
    nesterov: bool,
    maximize: bool,
    has_sparse_grad: bool,
) -> bool:
    if has_sparse_grad or grad_scale is not None or found_inf is not None:
        return False
    if not _are_numbers(weight_decay, momentum, lr, dampening):
        return False
    buffers = None if momentum == 0 else [buffer for buffer in momentum_buffer_list if buffer is not None]
    return try_sgd_steps(  # in the first step there are fewer buffers than parameters
        params, grads, buffers, lr=lr, weight_decay=weight_decay, momentum=momentum, dampening=dampening,
        nesterov=nesterov, maximize=maximize,
    )  # fmt: skip


@functools.wraps(_try_sgd)
def _try_sgd_unless_nesterov(*args: Any, **kwargs: Any) -> bool:
    """With foreach and nesterov, torch leaves another gradient behind."""
    return not kwargs.get("nesterov") and _try_sgd(*args, **kwargs)


_LOOPS: tuple[tuple[str, str, TryStep], ...] = (
    ("torch.optim.adam", "_single_tensor_adam", functools.partial(_try_adam, pow)),
    ("torch.optim.adam", "_multi_tensor_adam", functools.partial(_try_adam, pow)),
    ("torch.optim.adam", "_fused_adam", functools.partial(_try_adam, integer_power)),
    ("torch.optim.sgd", "_single_tensor_sgd", _try_sgd),
    ("torch.optim.sgd", "_multi_tensor_sgd", _try_sgd_unless_nesterov),
    ("torch.optim.sgd", "_fused_sgd", _try_sgd),
)


def _parameter_names(function: Callable[..., Any]) -> list[str]:
    return [*inspect.signature(function).parameters]


def patch_torch_optim_with_native_adam_and_sgd() -> None:
    """Once a process. A loop whose parameters have other names than here (another torch) stays as it is."""
    for module_name, name, try_step in _LOOPS:
        module = sys.modules.get(module_name)
        loop = getattr(module, name, None)
        if loop is not None and _parameter_names(loop) == _parameter_names(try_step):
            setattr(module, name, _make_native_step_or_torch_loop(loop, try_step))


def _make_native_step_or_torch_loop(loop: Callable[..., Any], try_step: TryStep) -> Callable[..., Any]:
    @functools.wraps(loop)
    def run(*args: Any, **kwargs: Any) -> Any:
        if not torch.compiler.is_compiling() and not torch.is_grad_enabled() and may_fuse_operators_into_one_c_call():
            with no_dispatch():
                if try_step(*args, **kwargs):
                    return None
        return loop(*args, **kwargs)

    return run

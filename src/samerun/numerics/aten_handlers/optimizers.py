"""The fused optimizers, written out: one rounding a line, the same steps as torch.optim's plain loops."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from samerun.numerics.aten_handlers.declare import Members, divide_correctly_rounded
from samerun.numerics.kernels.elementwise import sqrt
from samerun.numerics.kernels.optimizer_steps import AdamFactors, try_adam_steps, try_sgd_steps


def _unscale_and_iterate_unless_inf(
    params: Sequence[Tensor],
    grads: Sequence[Tensor],
    grad_scale: Tensor | None,
    found_inf: Tensor | None,
    maximize: bool,
    **others: Sequence[Tensor],
) -> Iterator[tuple[int, Tensor, Tensor]]:
    """Number, parameter and gradient of each; nothing where GradScaler found an infinity.

    GradScaler divides; the quotient is also written back, as torch's fused kernels do.
    """
    if found_inf is not None and bool(found_inf):
        return
    for at, p in enumerate(params):
        for name, states in (("grads", grads), *others.items()):
            if states and (len(states) != len(params) or states[at].shape != p.shape):
                raise RuntimeError(f"{name} must have one tensor for each parameter, with its shape: "
                                   f"parameter {at} has {list(p.shape)}")  # fmt: skip
        g = grads[at] if grad_scale is None else grads[at].copy_(divide_correctly_rounded(grads[at], grad_scale))
        yield at, p, torch.neg(g) if maximize else g


def _add_weight_decay(grad: Tensor, p: Tensor, weight_decay: float) -> Tensor:
    return torch.add(grad, torch.mul(p, weight_decay)) if weight_decay != 0 else grad


def integer_power(base: float, exponent: float) -> float:
    """base ** exponent for a whole number, by products in float64 (squares, from the highest bit down)."""
    result = 1.0
    for bit in bin(int(exponent))[2:]:
        result = result * result
        if bit == "1":
            result = result * base
    return result


def _make_fused_adam_handler(decoupled_weight_decay: bool) -> Any:
    def fused_adam_(
        params: Sequence[Tensor],
        grads: Sequence[Tensor],
        exp_avgs: Sequence[Tensor],
        exp_avg_sqs: Sequence[Tensor],
        max_exp_avg_sqs: Sequence[Tensor],
        steps: Sequence[Tensor],
        *,
        lr: Any,
        beta1: float,
        beta2: float,
        weight_decay: float,
        eps: float,
        amsgrad: bool,
        maximize: bool,
        grad_scale: Tensor | None = None,
        found_inf: Tensor | None = None,
    ) -> None:
        rate, is_coupled = float(lr), not decoupled_weight_decay and weight_decay != 0
        decay = 1 - rate * weight_decay if decoupled_weight_decay and weight_decay != 0 else 1.0

        known: dict[float, AdamFactors] = {}  # parameters have nearly always taken the same number of steps

        def factors_at(step: Tensor) -> AdamFactors:
            t = float(step)
            if t not in known:
                root = (1 - integer_power(beta2, t)) ** 0.5
                minus_size = -(rate / (1 - integer_power(beta1, t)))
                known[t] = AdamFactors(decay, weight_decay, 1 - beta1, beta2, 1 - beta2, root, eps, minus_size)
            return known[t]

        if grad_scale is None and found_inf is None and not amsgrad and len(steps) == len(params):
            factors = [factors_at(step) for step in steps]
            if try_adam_steps(
                params, grads, exp_avgs, exp_avg_sqs, None, factors, is_coupled=is_coupled, maximize=maximize
            ):
                return
        for at, p, gradient in _unscale_and_iterate_unless_inf(
            params, grads, grad_scale, found_inf, maximize,
            exp_avgs=exp_avgs, exp_avg_sqs=exp_avg_sqs, max_exp_avg_sqs=max_exp_avg_sqs if amsgrad else (),
        ):  # fmt: skip
            factor = factors_at(steps[at])
            if decay != 1:
                p.mul_(decay)
            g = _add_weight_decay(gradient, p, weight_decay) if is_coupled else gradient
            m, v = exp_avgs[at], exp_avg_sqs[at]
            m.add_(torch.mul(torch.sub(g, m), 1 - beta1))
            v.mul_(beta2).add_(torch.mul(torch.mul(g, 1 - beta2), g))
            if amsgrad:
                torch.maximum(max_exp_avg_sqs[at], v, out=max_exp_avg_sqs[at])
                v = max_exp_avg_sqs[at]
            below = divide_correctly_rounded(sqrt(v), factor.bias_correction2_sqrt).add_(eps)
            p.add_(torch.div(torch.mul(m, factor.minus_step_size), below))

    return fused_adam_


def fused_sgd_(
    params: Sequence[Tensor],
    grads: Sequence[Tensor],
    momentum_buffers: Sequence[Tensor],
    *,
    weight_decay: float,
    momentum: float,
    lr: Any,
    dampening: float,
    nesterov: bool,
    maximize: bool,
    is_first_step: bool,
    grad_scale: Tensor | None = None,
    found_inf: Tensor | None = None,
) -> None:
    rate = float(lr)
    if grad_scale is None and found_inf is None and not (momentum != 0 and is_first_step):
        buffers = momentum_buffers if momentum != 0 else None
        if try_sgd_steps(
            params, grads, buffers, lr=rate, weight_decay=weight_decay, momentum=momentum, dampening=dampening,
            nesterov=nesterov, maximize=maximize,
        ):  # fmt: skip
            return
    for at, p, gradient in _unscale_and_iterate_unless_inf(
        params, grads, grad_scale, found_inf, maximize, momentum_buffer_list=momentum_buffers if momentum != 0 else ()
    ):
        g = _add_weight_decay(gradient, p, weight_decay)
        if momentum != 0:
            m = momentum_buffers[at]
            if is_first_step:
                m.copy_(g)
            else:
                m.mul_(momentum).add_(torch.mul(g, 1 - dampening) if dampening else g)
            g = torch.add(g, torch.mul(m, momentum)) if nesterov else m
        p.add_(torch.mul(g, -rate))


MEMBERS: Members = {
    "aten::_fused_adam_": _make_fused_adam_handler(False),
    "aten::_fused_adamw_": _make_fused_adam_handler(True),
    "aten::_fused_sgd_": fused_sgd_,
}

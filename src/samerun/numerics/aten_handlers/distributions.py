"""Random numbers of named distributions: functions of uniform and normal ones, or drawn by rejection in float64."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from samerun.numerics.aten_handlers.declare import (
    Generator,
    Members,
    Scalar,
    advance_generator_for_draw,
    copy_reshaped_and_cast_,
    divide_correctly_rounded,
    require_floating_or_complex_dtype,
    scale_normal,
    scale_uniform,
    widen_half_inputs,
)
from samerun.numerics.kernels import distributions as kernels
from samerun.numerics.kernels import random as draws
from samerun.numerics.kernels import sums
from samerun.numerics.kernels.functions import exp, log1p, tan


def _require_same_floating_dtype(operator: str, *tensors: Tensor) -> None:
    """torch's own checks."""
    for x in tensors:
        if not x.is_floating_point():
            raise NotImplementedError(f'"{operator}" not implemented for {x.dtype}')
        if x.dtype is not tensors[0].dtype:
            raise RuntimeError(f"{operator}: expected one type, got {tensors[0].dtype} and {x.dtype}")


def _to_flat_float64(x: Tensor) -> Tensor:
    return x.detach().reshape(-1).to(torch.float64)


def _take_next_random_draw(generator: Generator, x: Tensor) -> kernels.RandomDraw:
    return kernels.RandomDraw(*advance_generator_for_draw(generator, x.device)[:2])


def poisson(rate: Tensor, generator: Generator = None) -> Tensor:
    _require_same_floating_dtype("poisson", rate)
    if not bool((rate >= 0).all()):
        raise RuntimeError("invalid Poisson rate, expected rate to be non-negative")
    return copy_reshaped_and_cast_(
        torch.empty_like(rate),
        kernels.sample_poisson(_to_flat_float64(rate), _take_next_random_draw(generator, rate)),
    )


def binomial(count: Tensor, probability: Tensor, generator: Generator = None) -> Tensor:
    """Of the broadcast shape."""
    for name, x in (("count", count), ("prob", probability)):
        if not x.is_floating_point():
            raise ValueError(f"binomial only supports floating-point dtypes for {name}, got: {x.dtype}")
    _require_same_floating_dtype("binomial", count, probability)
    n, p = torch.broadcast_tensors(count, probability)  # type: ignore[no-untyped-call]
    out = torch.empty(n.shape, dtype=count.dtype, device=count.device)
    return copy_reshaped_and_cast_(
        out, kernels.sample_binomial(_to_flat_float64(n), _to_flat_float64(p), _take_next_random_draw(generator, count))
    )


def standard_gamma(shape_parameter: Tensor, generator: Generator = None) -> Tensor:
    """At least the smallest normal number of the type, as torch's."""
    _require_same_floating_dtype("standard_gamma", shape_parameter)
    found = copy_reshaped_and_cast_(
        torch.empty_like(shape_parameter),
        kernels.sample_gamma(_to_flat_float64(shape_parameter), _take_next_random_draw(generator, shape_parameter)),
    )
    return found.clamp_(min=torch.finfo(shape_parameter.dtype).tiny)


def dirichlet(concentration: Tensor, generator: Generator = None) -> Tensor:
    """Gamma numbers g (float64, at least 2^-1022) of the last dimension: g / sum(g), from the smallest normal number
    of the type to the largest below 1.
    """
    _require_same_floating_dtype("dirichlet", concentration)
    g = kernels.sample_gamma(_to_flat_float64(concentration), _take_next_random_draw(generator, concentration)).clamp_(
        min=2.0**-1022
    )
    rows = g.reshape(-1, concentration.shape[-1] if concentration.dim() else 1)
    limits = torch.finfo(concentration.dtype)
    found = copy_reshaped_and_cast_(torch.empty_like(concentration), torch.div(rows, sums.sum(rows, 1, keepdim=True)))
    return found.clamp_(limits.tiny, 1 - limits.eps / 2)


def standard_gamma_grad(shape_parameter: Tensor, sample: Tensor) -> Tensor:
    """In float64, rounded once; see `implicit`."""
    _require_same_floating_dtype("standard_gamma_grad", shape_parameter, sample)
    a, x = torch.broadcast_tensors(shape_parameter, sample)  # type: ignore[no-untyped-call]
    return kernels.gamma_gradient(_to_flat_float64(a), _to_flat_float64(x)).reshape(a.shape).to(shape_parameter.dtype)


def dirichlet_grad(sample: Tensor, concentration: Tensor, total: Tensor) -> Tensor:
    """In float64, rounded once; see `implicit`."""
    _require_same_floating_dtype("dirichlet_grad", sample, concentration, total)
    given = torch.broadcast_tensors(sample, concentration, total)  # type: ignore[no-untyped-call]
    return kernels.dirichlet_grad(*map(_to_flat_float64, given)).reshape(given[0].shape).to(sample.dtype)


def cauchy_(x: Tensor, median: float = 0.0, sigma: float = 1.0, *, generator: Generator = None) -> Tensor:
    """median + tan(pi * ((u - 0.5) + 2^-25)) * sigma."""
    if not sigma > 0:
        raise RuntimeError(f"cauchy_ expects sigma > 0.0, but found sigma={sigma:g}")
    if not x.is_floating_point():
        raise RuntimeError(f"Cauchy numbers are continuous: expected a floating point type, got {x.dtype}")
    u = draws.uniform((x.numel(),), *advance_generator_for_draw(generator, x.device))
    angle = torch.mul(torch.add(torch.sub(u, 0.5), 2.0**-25), math.pi)
    return copy_reshaped_and_cast_(x, scale_normal(tan(angle), median, sigma))


def log_normal_(x: Tensor, mean: float = 1.0, std: float = 2.0, *, generator: Generator = None) -> Tensor:
    """exp(mean + z * std)."""
    if not std > 0:
        raise RuntimeError(f"log_normal_ expects std > 0.0, but found std={std:g}")
    _require_same_floating_dtype("log_normal", x)
    return copy_reshaped_and_cast_(
        x, exp(scale_normal(draws.normal((x.numel(),), *advance_generator_for_draw(generator, x.device)), mean, std))
    )


def geometric_(x: Tensor, p: float, *, generator: Generator = None) -> Tensor:
    """log(1 - u) / log1p(-p), rounded up; at least 1."""
    if not 0 < p < 1:
        raise RuntimeError(f"geometric_ expects p to be in (0, 1), but got p={p:g}")
    u = draws.uniform((x.numel(),), *advance_generator_for_draw(generator, x.device))
    below = log1p(torch.full((), -p, dtype=torch.float32, device=x.device))
    return copy_reshaped_and_cast_(
        x, torch.clamp(torch.ceil(divide_correctly_rounded(log1p(torch.neg(u)), below)), min=1)
    )


def _make_out_of_place(fill_: Callable[..., Tensor]) -> Callable[..., Tensor]:
    return lambda x, *args, **kwargs: fill_(torch.empty_like(x), *args, **kwargs)


def rrelu_with_noise(
    x: Tensor,
    noise: Tensor,
    lower: Scalar = 0.125,
    upper: Scalar = 1 / 3,
    training: bool = False,
    generator: Generator = None,
) -> Tensor:
    """x * r up to 0, where r is uniform from lower to upper, x above; the factors go to `noise`.

    Not in training: leaky_relu of the slope between.
    """
    if lower > upper:
        raise RuntimeError("Lower bound should be less than or equal to the upper bound")
    require_floating_or_complex_dtype(x.dtype)
    if not training:
        return torch.nn.functional.leaky_relu(x, _mean_slope(lower, upper))
    u = draws.uniform((x.numel(),), *advance_generator_for_draw(generator, x.device))
    factors = scale_uniform(u, float(lower), float(upper)).reshape(x.shape).to(x.dtype)
    noise.copy_(torch.where(x <= 0, factors, torch.ones_like(x)))
    return torch.where(x <= 0, torch.mul(x, factors), x)


def rrelu_with_noise_(x: Tensor, noise: Tensor, *settings: Any, **kwargs: Any) -> Tensor:
    return x.copy_(rrelu_with_noise(x, noise, *settings, **kwargs))


def rrelu_with_noise_functional(x: Tensor, noise: Tensor, *settings: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
    kept = noise.clone()
    return rrelu_with_noise(x, kept, *settings, **kwargs), kept


def _mean_slope(lower: Scalar, upper: Scalar) -> float:
    return (float(lower) + float(upper)) / 2


@widen_half_inputs
def rrelu_with_noise_backward(
    grad: Tensor, x: Tensor, noise: Tensor, lower: Scalar, upper: Scalar, training: bool, of_result: bool
) -> Tensor:
    """grad * noise in training, where the bounds are more than 1e-6 apart; else the gradient of leaky_relu."""
    if training and upper - lower > 1e-6:
        return torch.mul(grad, noise)
    slope = _mean_slope(lower, upper)
    return torch.where(x > 0, grad, torch.mul(grad, slope))


MEMBERS: Members = {
    "aten::poisson": poisson,
    "aten::binomial": binomial,
    "aten::_standard_gamma": standard_gamma,
    "aten::_standard_gamma_grad": standard_gamma_grad,
    "aten::_sample_dirichlet": dirichlet,
    "aten::_dirichlet_grad": dirichlet_grad,
    "aten::cauchy_": cauchy_,
    "aten::cauchy": _make_out_of_place(cauchy_),
    "aten::log_normal_": log_normal_,
    "aten::log_normal": _make_out_of_place(log_normal_),
    "aten::geometric_": geometric_,
    "aten::geometric": _make_out_of_place(geometric_),
    "aten::rrelu_with_noise": rrelu_with_noise,
    "aten::rrelu_with_noise_": rrelu_with_noise_,
    "aten::rrelu_with_noise_functional": rrelu_with_noise_functional,
    "aten::rrelu_with_noise_backward": rrelu_with_noise_backward,
}

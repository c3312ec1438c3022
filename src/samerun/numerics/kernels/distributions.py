"""Gamma, Poisson and binomial numbers on tensors, and gradients of gamma and beta numbers, for all values at once.

The steps are those of `reference.distributions`. A value's words come from its
own blocks, so that it depends on the seed, the draw's number and its place alone. All take and give float64, 1-D, on
any device.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from samerun.numerics.kernels import float64_math as f64
from samerun.numerics.kernels import functions
from samerun.numerics.kernels.elementwise import sqrt
from samerun.numerics.kernels.random import philox_block_words
from samerun.numerics.reference import distributions as reference
from samerun.numerics.reference.float64_math import HALF_LOG_TURN
from samerun.numerics.reference.random import TURN

_INF, _NAN = float("inf"), float("nan")
ProposeAndAccept = Callable[[Tensor, Tensor, Tensor], tuple[Tensor, Tensor]]
"""(which values, their first words, their second) -> candidates, and which of them are accepted."""


class RandomDraw:
    """The words of one draw: number `draw_number` of the seed's stream."""

    def __init__(self, seed: int, draw_number: int) -> None:
        self.seed, self.draw_number = seed, draw_number

    def attempt_words64(self, value_indices: Tensor, attempt: int) -> tuple[Tensor, Tensor]:
        """The two words of an attempt, for the values with these numbers; int64, their bits."""
        high = attempt << 56
        found = philox_block_words(
            value_indices | (high - (1 << 64) if high >> 63 else high), self.seed, self.draw_number
        )
        return found[:, 0].contiguous(), found[:, 1].contiguous()

    def draw_by_rejection(self, value_indices: Tensor, propose_and_accept: ProposeAndAccept) -> Tensor:
        """The first accepted candidate of each of the values with these numbers."""
        left = torch.arange(value_indices.numel(), device=value_indices.device)
        out = torch.empty(value_indices.numel(), dtype=torch.float64, device=value_indices.device)
        for attempt in range(reference.ATTEMPTS):
            candidates, accepted = propose_and_accept(left, *self.attempt_words64(value_indices[left], attempt))
            out.scatter_(0, left, candidates)
            left = left[~accepted]
            if left.numel() == 0:
                break
        return out

    def draw_by_cdf_inversion(
        self, value_indices: Tensor, probability_of_zero: Tensor, next_probability: Callable[[Tensor, int], Tensor]
    ) -> Tensor:
        """For each value the first number whose distribution function exceeds a uniform number.

        chance: of 0. step: the chance of k, from that of k - 1 and k.
        """
        u, total, k = (
            _uniform_from_word64(self.attempt_words64(value_indices, 0)[0]),
            probability_of_zero,
            torch.zeros_like(probability_of_zero),
        )
        for number in range(1, reference.MOST_COUNTED + 1):
            more = u >= total
            if not bool(more.any()):
                break
            k = torch.add(k, more.to(torch.float64))
            probability_of_zero = next_probability(probability_of_zero, number)
            total = torch.add(total, probability_of_zero)
        return k


def _uniform_from_word64(word: Tensor) -> Tensor:
    return torch.mul(((word >> 11) & ((1 << 53) - 1)).to(torch.float64), 2.0**-53)


def _positive_uniform_from_word64(word: Tensor) -> Tensor:
    return torch.mul((((word >> 11) & ((1 << 53) - 1)) + 1).to(torch.float64), 2.0**-53)


def _normal_from_word64(word: Tensor) -> Tensor:
    u = torch.mul((((word >> 8) & 0xFFFFFF) + 1).to(torch.float32), 2.0**-24)
    v = torch.mul(((word >> 40) & 0xFFFFFF).to(torch.float32), 2.0**-24)
    size = sqrt(torch.mul(functions.log(u), -2.0))
    return torch.mul(size, functions.cos(torch.mul(v, float(TURN)))).to(torch.float64)


def sample_gamma(shape_parameter: Tensor, draw: RandomDraw) -> Tensor:
    """Gamma numbers of these shapes, and scale 1."""
    inside = (shape_parameter > 0) & (shape_parameter < _INF)
    given = torch.where(inside, shape_parameter, 1.0)
    small = given < 1
    d = torch.sub(torch.where(small, torch.add(given, 1.0), given), 1 / 3)
    c = f64.divide_scalar_by(1.0, sqrt(torch.mul(d, 9.0)))

    def propose_and_accept(
        value_positions: Tensor, first_words64: Tensor, second_words64: Tensor
    ) -> tuple[Tensor, Tensor]:
        x, u, scale = (
            _normal_from_word64(first_words64),
            _positive_uniform_from_word64(second_words64),
            d[value_positions],
        )
        t = torch.mul(c[value_positions], x)
        above = torch.mul(t, torch.add(torch.mul(t, torch.add(t, 3.0)), 3.0))
        bound = torch.mul(scale, torch.sub(torch.mul(f64.log1p(t), 3.0), above))
        bound = torch.add(torch.mul(torch.mul(x, 0.5), x), bound)
        return torch.mul(scale, torch.add(above, 1.0)), (t > -1) & (f64.log(u) < bound)

    found = draw.draw_by_rejection(
        torch.arange(shape_parameter.numel(), device=shape_parameter.device), propose_and_accept
    )
    at = small.nonzero()[:, 0]
    if at.numel():
        boost = f64.exp(
            torch.div(f64.log(_positive_uniform_from_word64(draw.attempt_words64(at, reference.BOOST)[0])), given[at])
        )
        found.scatter_(0, at, torch.mul(found[at], boost))
    return torch.where(
        inside, found, torch.where((shape_parameter == 0) | (shape_parameter == _INF), shape_parameter, _NAN)
    )


def _sample_by_inversion_or_rejection(
    is_small: Tensor, sample_by_inversion: Callable[[Tensor], Tensor], sample_by_rejection: Callable[[Tensor], Tensor]
) -> Tensor:
    """Sample the small ones by counting, the others by rejection; both functions take the indices of the values."""
    out = torch.empty(is_small.numel(), dtype=torch.float64, device=is_small.device)
    for chosen, compute in ((is_small, sample_by_inversion), (~is_small, sample_by_rejection)):
        values = chosen.nonzero()[:, 0]
        if values.numel():
            out.scatter_(0, values, compute(values))
    return out


def sample_poisson(flat_rate: Tensor, draw: RandomDraw) -> Tensor:
    """Poisson numbers of these rates, float64 of shape (n,), which are 0 or more."""

    def sample_by_inversion(value_indices: Tensor) -> Tensor:
        mean = flat_rate[value_indices]
        start = f64.exp(torch.neg(mean))
        return draw.draw_by_cdf_inversion(value_indices, start, lambda p, k: _divide_by_integer(torch.mul(p, mean), k))

    def sample_by_rejection(value_indices: Tensor) -> Tensor:
        return _poisson_by_rejection(
            torch.where(flat_rate[value_indices] == _INF, 1e9, flat_rate[value_indices]), value_indices, draw
        )

    found = _sample_by_inversion_or_rejection(
        flat_rate < reference.REJECTION_FROM, sample_by_inversion, sample_by_rejection
    )
    return torch.where(flat_rate == _INF, flat_rate, found)


def _divide_by_integer(x: Tensor, k: int) -> Tensor:
    return torch.div(x, torch.full((), float(k), dtype=torch.float64, device=x.device))


def _poisson_by_rejection(rate: Tensor, value_indices: Tensor, draw: RandomDraw) -> Tensor:
    b = torch.add(torch.mul(sqrt(rate), 2.53), 0.931)
    a = torch.add(torch.mul(b, 0.02483), -0.059)
    inverse = torch.add(f64.divide_scalar_by(1.1328, torch.sub(b, 3.4)), 1.1239)
    enough = torch.rsub(f64.divide_scalar_by(3.6224, torch.sub(b, 2.0)), 0.9277)

    def propose_and_accept(
        value_positions: Tensor, first_words64: Tensor, second_words64: Tensor
    ) -> tuple[Tensor, Tensor]:
        mean, slope, height = rate[value_positions], a[value_positions], b[value_positions]
        u, v = torch.sub(_uniform_from_word64(first_words64), 0.5), _positive_uniform_from_word64(second_words64)
        room = torch.rsub(torch.abs(u), 0.5)
        wide_u = torch.mul(torch.add(torch.div(torch.mul(slope, 2.0), room), height), u)
        k = torch.floor(torch.add(torch.add(wide_u, mean), 0.43))
        m = torch.clamp(torch.add(k, 1.0), min=1.0)
        chance = torch.sub(torch.mul(k, f64.log(torch.div(mean, m))), torch.mul(f64.log(m), 0.5))
        chance = torch.add(chance, torch.sub(m, mean))
        chance = torch.sub(chance, torch.add(f64.loggamma_stirling_error(m), HALF_LOG_TURN))
        below = f64.log(torch.div(torch.mul(v, inverse[value_positions]), _hat_height(slope, room, height))) <= chance
        inside = (k >= 0) & ~((room < 0.013) & (v > room))
        return torch.clamp(k, min=0), (room > 0) & (
            ((room >= 0.07) & (v <= enough[value_positions])) | (inside & below)
        )

    return draw.draw_by_rejection(value_indices, propose_and_accept)


def _hat_height(slope: Tensor, room: Tensor, height: Tensor) -> Tensor:
    return torch.add(torch.div(slope, torch.mul(room, room)), height)


def sample_binomial(count: Tensor, probability: Tensor, draw: RandomDraw) -> Tensor:
    """Binomial numbers of these counts of trials, and chances of success; see the reference."""
    drawn = (count > 0) & (count < _INF) & (probability > 0) & (probability < 1)
    p = torch.where(drawn, probability, 0.5)
    swapped = p > 0.5
    q = torch.where(swapped, torch.rsub(p, 1.0), p)
    n = torch.floor(torch.where(drawn, count, 1.0))

    def sample_by_inversion(value_indices: Tensor) -> Tensor:
        trials, chance = n[value_indices], q[value_indices]
        odds = torch.div(chance, torch.rsub(chance, 1.0))
        start = f64.exp(torch.mul(trials, f64.log1p(torch.neg(chance))))

        def step(p: Tensor, k: int) -> Tensor:
            return torch.mul(p, torch.mul(odds, _divide_by_integer(torch.sub(trials, k - 1.0), k)))

        return torch.minimum(draw.draw_by_cdf_inversion(value_indices, start, step), trials)

    is_small = torch.mul(n, q) < reference.REJECTION_FROM
    k = _sample_by_inversion_or_rejection(
        is_small, sample_by_inversion, lambda values: _binomial_by_rejection(n[values], q[values], values, draw)
    )
    found = torch.where(swapped, torch.sub(count, k), k)
    none = (count <= 0) | (probability <= 0)
    found = torch.where(none, 0.0, torch.where(probability >= 1, count, torch.where(drawn, found, _NAN)))
    return torch.where(torch.isnan(count) | torch.isnan(probability), _NAN, found)


def _binomial_by_rejection(n: Tensor, q: Tensor, value_indices: Tensor, draw: RandomDraw) -> Tensor:
    rest_q = torch.rsub(q, 1.0)
    spread = sqrt(torch.mul(torch.mul(n, q), rest_q))
    b = torch.add(torch.mul(spread, 2.53), 1.15)
    a = torch.add(torch.add(torch.mul(b, 0.0248), -0.0873), torch.mul(q, 0.01))
    center, enough = torch.add(torch.mul(n, q), 0.5), torch.rsub(f64.divide_scalar_by(4.2, b), 0.92)
    odds, alpha = torch.div(q, rest_q), torch.mul(torch.add(f64.divide_scalar_by(5.1, b), 2.83), spread)
    mode = torch.floor(torch.mul(torch.add(n, 1.0), q))
    rest = torch.add(torch.sub(n, mode), 1.0)
    best = torch.div(torch.add(mode, 1.0), torch.mul(odds, rest))
    best = torch.mul(torch.add(mode, 0.5), f64.log(best))
    best = torch.add(
        best,
        torch.add(f64.loggamma_stirling_error(torch.add(mode, 1.0)), f64.loggamma_stirling_error(rest)),
    )

    def propose_and_accept(
        value_positions: Tensor, first_words64: Tensor, second_words64: Tensor
    ) -> tuple[Tensor, Tensor]:
        trials, slope, height = n[value_positions], a[value_positions], b[value_positions]
        u, v = torch.sub(_uniform_from_word64(first_words64), 0.5), _positive_uniform_from_word64(second_words64)
        room = torch.rsub(torch.abs(u), 0.5)
        wide_u = torch.mul(torch.add(torch.div(torch.mul(slope, 2.0), room), height), u)
        k = torch.floor(torch.add(wide_u, center[value_positions]))
        inside = (k >= 0) & (k <= trials)
        k = torch.minimum(torch.clamp(k, min=0), trials)
        m, left = torch.add(k, 1.0), torch.add(torch.sub(trials, k), 1.0)
        chance = torch.mul(torch.add(trials, 1.0), f64.log(torch.div(rest[value_positions], left)))
        chance = torch.add(best[value_positions], chance)
        ratio = f64.log(torch.div(torch.mul(odds[value_positions], left), m))
        chance = torch.add(chance, torch.mul(torch.add(k, 0.5), ratio))
        chance = torch.sub(chance, torch.add(f64.loggamma_stirling_error(m), f64.loggamma_stirling_error(left)))
        below = f64.log(torch.div(torch.mul(v, alpha[value_positions]), _hat_height(slope, room, height))) <= chance
        return k, (room > 0) & (((room >= 0.07) & (v <= enough[value_positions])) | (inside & below))

    return draw.draw_by_rejection(value_indices, propose_and_accept)


CUT = reference.CUT
CHUNK = 4096
"""Values whose points are in memory together."""
Function = Callable[[Tensor], Tensor]


def _estimate_integration_end(slope: Tensor, curvature: Tensor) -> Tensor:
    root = sqrt(torch.add(torch.mul(slope, slope), torch.mul(curvature, 2 * CUT)))
    return f64.divide_scalar_by(2 * CUT, torch.add(slope, root))


def _integrate_times_exp_decay(
    endpoint_estimate: Tensor, decay: Function, decay_slope: Function, integrand: Function
) -> Tensor:
    for _ in range(3):
        endpoint_estimate = torch.sub(
            endpoint_estimate, torch.div(torch.sub(decay(endpoint_estimate), CUT), decay_slope(endpoint_estimate))
        )
    places = torch.tensor(reference.PLACES, dtype=torch.float64, device=endpoint_estimate.device)
    y = torch.mul(endpoint_estimate, places[:, None])
    terms = torch.mul(integrand(y), f64.exp(torch.neg(decay(y))))
    total = torch.zeros_like(endpoint_estimate)
    for weight, term in zip(reference.WEIGHTS, terms, strict=True):
        total = torch.add(total, torch.mul(term, weight))
    return torch.mul(endpoint_estimate, total)


def _compute_in_chunks(compute: Callable[..., Tensor], *tensors: Tensor) -> Tensor:
    if tensors[0].numel() <= CHUNK:
        return compute(*tensors)
    chunks = zip(*(torch.split(tensor, CHUNK) for tensor in tensors), strict=True)
    return torch.cat([compute(*chunk) for chunk in chunks])


def gamma_gradient(shape_parameter: Tensor, sample: Tensor) -> Tensor:
    """dx/da of gamma numbers x of shapes a."""
    return _compute_in_chunks(_gamma_gradient_of_chunk, shape_parameter, sample)


def dirichlet_grad(sample: Tensor, alpha: Tensor, alpha_plus_beta: Tensor) -> Tensor:
    """dx/da / (1 - x) of beta numbers x of parameters a and total - a."""
    return _compute_in_chunks(_beta_gradient_over_one_minus_sample, sample, alpha, alpha_plus_beta)


def _gamma_gradient_of_chunk(shape_parameter: Tensor, sample: Tensor) -> Tensor:
    inside = (shape_parameter > 0) & (shape_parameter < _INF) & (sample > 0) & (sample < _INF)
    zero, shape_parameter, sample = (
        sample == 0,
        torch.where(inside, shape_parameter, 1.0),
        torch.where(inside, sample, 1.0),
    )
    above = sample >= shape_parameter
    sign = torch.where(above, 1.0, -1.0).to(torch.float64)
    shift = torch.sub(f64.digamma_positive(shape_parameter), f64.log(sample))
    divisor = torch.where(above, 1.0, 1.5).to(torch.float64)
    near = _estimate_integration_end(torch.abs(torch.sub(sample, shape_parameter)), torch.div(sample, divisor))
    far = f64.log(torch.add(f64.divide_scalar_by(4 * CUT, sample), 4.0))
    below = torch.where(near <= 1, near, torch.div(torch.add(sample, CUT), shape_parameter))
    total = _integrate_times_exp_decay(
        torch.where(above, torch.minimum(near, far), below),
        lambda y: torch.sub(
            torch.mul(sample, f64.expm1(torch.mul(sign, y))), torch.mul(shape_parameter, torch.mul(sign, y))
        ),
        lambda y: torch.mul(sign, torch.sub(torch.mul(sample, f64.exp(torch.mul(sign, y))), shape_parameter)),
        lambda y: torch.sub(y, torch.mul(sign, shift)),
    )
    return torch.where(zero, 0.0, torch.where(inside, torch.mul(sample, total), _NAN))


def _beta_gradient_over_one_minus_sample(sample: Tensor, alpha: Tensor, total: Tensor) -> Tensor:
    inside = (alpha > 0) & (alpha < total) & (total < _INF) & (sample > 0) & (sample <= 1)
    zero = sample == 0
    sample, alpha, total = (
        torch.where(inside, sample, 0.5),
        torch.where(inside, alpha, 1.0),
        torch.where(inside, total, 2.0),
    )
    other, above = torch.rsub(sample, 1.0), sample >= torch.div(alpha, total)
    rest, here = torch.where(above, other, sample), torch.where(above, sample, other)
    rate = torch.where(above, torch.sub(total, alpha), alpha)
    shift = torch.sub(torch.sub(f64.digamma_positive(alpha), f64.digamma_positive(total)), f64.log(sample))

    def level(y: Tensor) -> Tensor:
        falling = f64.expm1(torch.neg(y))
        return f64.log_near_one(torch.add(here, torch.mul(rest, torch.add(falling, 1.0))), torch.mul(rest, falling))

    def slope(y: Tensor) -> Tensor:
        part = torch.mul(rest, f64.exp(torch.neg(y)))
        return torch.sub(rate, torch.div(torch.mul(total, part), torch.add(here, part)))

    def integrand(y: Tensor) -> Tensor:
        height = level(y)
        return torch.where(above, torch.sub(torch.neg(shift), height), torch.add(torch.add(y, height), shift))

    curvature = torch.mul(torch.mul(torch.mul(total, sample), other), reference.INVERSE_E)
    near = _estimate_integration_end(torch.abs(torch.sub(torch.mul(total, sample), alpha)), curvature)
    far = torch.div(torch.rsub(torch.mul(total, f64.log(here)), CUT), rate)
    found = _integrate_times_exp_decay(
        torch.where(near <= 1, near, far),
        lambda y: torch.add(torch.mul(rate, y), torch.mul(total, level(y))),
        slope,
        integrand,
    )
    return torch.where(zero, 0.0, torch.where(inside, torch.mul(sample, found), _NAN))

"""How gamma and beta numbers move with their parameters, one at a time, in float64 (`wide`).

A number x of a distribution function F(x; a) and density f moves by dx/da = -(dF/da) / f(x): Figurnov, Mohamed and
Mnih (2018), "Implicit reparameterization gradients". Written as an integral over the density on one side of x, with
the logarithm of the variable for the integrand's, every term is positive on the side where x is in the tail. With the
distance from x (in the logarithm, or in the logit) as variable, the integrand falls by exp(-fall(y)), fall(0) = 0 and
convex. It is cut off where fall is about `CUT` and summed up at the points of Gauss and Legendre, cubed, for it may
begin with a short steep piece. The error, measured: of gamma numbers below 1e-6 of the result, for a from 1e-4 to 1e5;
of beta numbers below 2e-5 where both parameters are from 0.01 to 1000, and below 1e-3 from 1e-4 on.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from samerun.numerics.reference.float64_math import digamma, exp, expm1, log, log_of

CUT = 36.0
INVERSE_E = 0.36787944117144233
_HALF = (
    (0.0013680690752592183, 0.9986319309247408, 0.003509305004735048),
    (0.007194244227365833, 0.9928057557726342, 0.008137197365452835),
    (0.017618872206246784, 0.9823811277937532, 0.01269603265463103),
    (0.03254696203113015, 0.9674530379688698, 0.017136931456510716),
    (0.05183942211697394, 0.9481605778830261, 0.02141794901111334),
    (0.07531619313371501, 0.9246838068662849, 0.025499029631188087),
    (0.1027581020160288, 0.8972418979839712, 0.029342046739267772),
    (0.13390894062985517, 0.8660910593701449, 0.032911111388180925),
    (0.1684778665348924, 0.8315221334651076, 0.03617289705442425),
    (0.20614212137961885, 0.7938578786203812, 0.039096947893535156),
    (0.2465500455338853, 0.7534499544661147, 0.041655962113473374),
    (0.2893243619346823, 0.7106756380653176, 0.043826046502201906),
    (0.33406569885893617, 0.6659343011410638, 0.045586939347881945),
    (0.38035631887393145, 0.6196436811260685, 0.04692219954040228),
    (0.42776401920860174, 0.5722359807913983, 0.04781936003963743),
    (0.4758461671561308, 0.5241538328438692, 0.0482700442573639),
)
"""The 32 points of Gauss and Legendre from 0 to 1, in pairs, and the weight of both."""
_POINTS = [(low, weight) for low, _, weight in _HALF] + [(high, weight) for _, high, weight in reversed(_HALF)]
PLACES = tuple((point * point) * point for point, _ in _POINTS)
WEIGHTS = tuple(weight * (3 * (point * point)) for point, weight in _POINTS)

Function = Callable[[float], float]


def _first_endpoint(slope: float, curvature: float) -> float:
    """Where slope y + curvature y^2 / 2 is CUT."""
    return (2 * CUT) / (slope + math.sqrt(slope * slope + (2 * CUT) * curvature))


def _integrate_to_endpoint(end: float, fall: Function, slope: Function, integrand: Function) -> float:
    """Of integrand * exp(-fall), from 0 to `end`, which three steps of Newton's method first bring to fall = CUT."""
    for _ in range(3):
        end = end - (fall(end) - CUT) / slope(end)
    total = 0.0
    for place, weight in zip(PLACES, WEIGHTS, strict=True):
        y = end * place
        total = total + weight * (integrand(y) * exp(-fall(y)))
    return end * total


def gamma_gradient(a: float, x: float) -> float:
    """dx/da of a gamma number x of shape a; 0 where x is 0."""
    if x == 0:
        return 0.0
    if not (0 < a < math.inf and 0 < x < math.inf):
        return math.nan
    above = x >= a
    sign = 1.0 if above else -1.0
    shift = digamma(a) - log(x)
    near = _first_endpoint(abs(x - a), x if above else x / 1.5)
    end = min(near, log(4 + 4 * CUT / x)) if above else near if near <= 1 else (CUT + x) / a
    total = _integrate_to_endpoint(
        end,
        lambda y: x * expm1(sign * y) - a * (sign * y),
        lambda y: sign * (x * exp(sign * y) - a),
        lambda y: y - sign * shift,
    )
    return x * total


def beta_gradient(x: float, a: float, total: float) -> float:
    """dx/da / (1 - x) of a beta number x of parameters a and total - a; 0 where x is 0."""
    if x == 0:
        return 0.0
    if not (0 < a < total < math.inf and 0 < x <= 1):
        return math.nan
    b = total - a
    above = x >= a / total
    rest, here, rate = (1 - x, x, b) if above else (x, 1 - x, a)
    shift = (digamma(a) - digamma(total)) - log(x)

    def level(y: float) -> float:
        falling = expm1(-y)
        return log_of(here + rest * (falling + 1), rest * falling)

    def slope(y: float) -> float:
        part = rest * exp(-y)
        return rate - (total * part) / (here + part)

    near = _first_endpoint(abs(total * x - a), ((total * x) * (1 - x)) * INVERSE_E)
    end = near if near <= 1 else (CUT - total * log(here)) / rate
    found = _integrate_to_endpoint(
        end,
        lambda y: rate * y + total * level(y),
        slope,
        lambda y: (-shift - level(y)) if above else (y + level(y)) + shift,
    )
    return x * found

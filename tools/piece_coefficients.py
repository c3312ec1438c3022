"""Write native/functions/pieces.h: erf(a) / 2 and 1 / (1 + e^a) by 32 polynomials each, for AVX-512.

`python tools/piece_coefficients.py` writes the file; `--check` only looks. Needs mpmath, which torch brings along.

A polynomial's centre lies where the function's value and slope are nearly floats (S. Gal, Computing elementary
functions: a new approach for achieving high accuracy and good performance; 1986), so that these need no low parts.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import torch
from coefficients import BITS, write
from mpmath import mp, mpf  # type: ignore[import-untyped]
from single_coefficients import array, bits, constant, fitted, single, text, words

PAGE = Path(__file__).resolve().parents[1] / "native" / "functions" / "pieces.h"
PIECES = 32
POWER_MORE = 2.0**-36
TRIES = 1 << 19  # centres in a window

HEAD = """/* Written by tools/piece_coefficients.py: change that. Numbers for 32 pieces each, the j-th about j/8:
 * f(centre + d) is value + d (slope + d (rest_1 + d (rest_2 + ...))). */
#ifndef SAMERUN_PIECES_H
#define SAMERUN_PIECES_H
"""


class Kind(NamedTuple):
    """A function; the same and its slope in double precision."""

    name: str
    what: str
    exact: Callable[[Any], Any]
    quick: Callable[[torch.Tensor], torch.Tensor]
    slope: Callable[[torch.Tensor], torch.Tensor]
    more: float  # than `value`, which is a multiple of the next, if that is not 0
    multiple: float
    rounded: float  # away, of the terms behind the slope, at the end of a piece about its centre
    terms: int
    first: float  # the centre of piece 0 and its value are multiples of it
    ends: bool  # the last piece is NaN


ERF = Kind(
    "erf",
    "erf(a) / 2",
    lambda a: mp.erf(a) / 2,
    lambda a: torch.erf(a) / 2,
    lambda a: torch.exp(-a * a) / math.sqrt(math.pi),
    1.2 * 2.0**-36,
    0,
    0.4 * 2.0**-36,
    5,
    2.0**-28,  # the last bit of a at the end of it: then a - centre and value - result lose nothing
    False,
)
FALLING = Kind(
    "falling",
    "1 / (1 + e^a)",
    lambda a: 1 / (1 + mp.exp(a)),
    lambda a: 1 / (1 + torch.exp(a)),
    lambda a: -1 / ((1 + torch.exp(a)) * (1 + torch.exp(-a))),
    0,
    2.0**-24,  # then 1 - value is a float too
    1.2 * 2.0**-36,
    4,
    0,
    True,
)


def base(kind: Kind, value: torch.Tensor, multiple: float) -> torch.Tensor:
    value = value - kind.more
    return (value / multiple).round() * multiple if multiple else value.float().double()


def off(kind: Kind, c: torch.Tensor, multiple: float) -> torch.Tensor:
    """How far value and slope are from floats."""
    value, slope = kind.quick(c), kind.slope(c)
    return (value - kind.more - base(kind, value, multiple)).abs() + (slope - slope.float().double()).abs() / 16


def centre(kind: Kind, about: float) -> float:
    """A float near `about` where value and slope are nearly floats; away from it more is lost by rounding."""
    best, least, width = about, math.inf, 1 / 16
    for _ in range(5):
        steps = 1 - 2 * torch.arange(TRIES, dtype=torch.float64) / TRIES
        c = (about + width * steps).float().double()
        lost = off(kind, c, kind.multiple) + kind.rounded * (1 + 16 * (c - about).abs()) ** 2
        if lost.min().item() < least:
            best, least = c[lost.argmin()].item(), lost.min().item()
        width /= 2
    return best


def first_centre(kind: Kind) -> float:
    """So near 0 that what value - result loses where that is less than half of value does not matter."""
    c = torch.arange(1 << 13, 1 << 17, dtype=torch.float64) * kind.first
    return c[off(kind, c, kind.first).argmin()].item()


def rows(kind: Kind) -> tuple[list[list[float]], Any]:
    """Piece j is for (j - 1/2) / 8 to (j + 1/2) / 8: its centre, value, slope and the other coefficients.

    Also the greatest error of all that these are not exactly.
    """
    found, worst = [], mpf(0)
    for j in range(PIECES):
        c, multiple = (centre(kind, j / 8), kind.multiple) if j else (first_centre(kind), kind.first or kind.multiple)
        value, slope = mp.taylor(kind.exact, mpf(c), 1)
        start, rise = base(kind, torch.tensor(float(value), dtype=torch.float64), multiple).item(), single(slope)

        def rest(d: Any, c: float = c, value: Any = value, slope: Any = slope) -> Any:
            return (kind.exact(mpf(c) + d) - value - slope * d) / d**2

        tail, off = fitted(rest, max(mpf(j - 0.5) / 8, 0) - c, mpf(j + 0.5) / 8 - c, kind.terms, lambda d: d**2)
        if kind.ends and j == PIECES - 1:
            found.append([c, math.nan, rise, *tail])
            continue
        worst = max(worst, off + abs(value - kind.more - start) + abs(slope - rise) / 10)
        found.append([c, start, rise, *tail])
    return found, worst


def arrays(kind: Kind) -> str:
    numbers, worst = rows(kind)
    more = f", which is {text(kind.more)[:-1]} more" if kind.more else ""
    out = f"\n/* {kind.what}{more}; to 2^{int(mp.ceil(mp.log(worst, 2)))} */\n"
    parts = ["centre", "value", "slope", *(f"rest_{i + 1}" for i in range(kind.terms))]
    for part, column in zip(parts, zip(*numbers, strict=True), strict=True):
        out += array(f"{kind.name}_{part}", [list(column[k : k + 8]) for k in range(0, PIECES, 8)])
    return out


def powers() -> str:
    """A base is about 2^(j / 32); its bits, less j << 18, are added with those of the power of two."""
    step = mp.log(2) / PIECES
    bases = [single(mpf(2) ** (mpf(j) / PIECES)) for j in range(PIECES)]
    off = [single(mp.log(mpf(base)) - j * step + POWER_MORE) for j, base in enumerate(bases)]
    return "".join(
        [
            "\n/* 32/ln(2); ln(2)/32; floats b at about 2^(j/32): the bits of b less j << 18, and\n",
            f" * log(b) - j ln(2)/32 and {text(POWER_MORE)[:-1]} more */\n",
            f"#define PIECES_PER_UNIT {text(single(1 / step))}\n",
            constant("LN2_PIECE", step),
            words("piece_bits", [bits(base) - (j << 18) for j, base in enumerate(bases)]),
            array("piece_off", [off[k : k + 8] for k in range(0, PIECES, 8)]),
        ]
    )


def page() -> str:
    mp.prec = BITS
    return f"{HEAD}{arrays(ERF)}{arrays(FALLING)}{powers()}\n#endif\n"


if __name__ == "__main__":
    sys.exit(write(PAGE, page()))

"""Write native/functions/pieces.h: erf and 1 / (1 + e^a) by 32 polynomials each, for AVX-512.

`python tools/piece_coefficients.py` writes the file; `--check` only looks. Needs mpmath, which torch brings along.

A polynomial's centre lies where the function's value is nearly a float (S. Gal, Computing elementary functions: a new
approach for achieving high accuracy and good performance; 1986), so that the value needs no low part.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from coefficients import BITS, Function, write
from mpmath import mp, mpf  # type: ignore[import-untyped]
from single_coefficients import array, fitted, single

PAGE = Path(__file__).resolve().parents[1] / "native" / "functions" / "pieces.h"
PIECES, TERMS = 32, 5
PARTS = ("centre", "value", "slope", *(f"rest_{i}" for i in range(TERMS)))

HEAD = """/* Written by tools/piece_coefficients.py: change that. Numbers for 32 pieces each, the j-th about j/8:
 * f(centre + d) is value + d (slope + rest_0 + d (rest_1 + d (rest_2 + ...))). */
#ifndef SAMERUN_PIECES_H
#define SAMERUN_PIECES_H
"""


def centre(function: Callable[[float], float], about: float) -> float:
    """A float just below `about` whose value is within 2^-10 of a last bit from a float, else the nearest to one."""
    best, least, width = about, math.inf, 1 / 256
    while least > 2**-10 and width <= 1 / 16:
        for i in range(1 << 14):
            c = single(about - width * i / (1 << 14))
            value = function(c)
            off = abs(value - single(value)) / math.ulp(value) / 2**29
            if off < least:
                best, least = c, off
        width *= 2
    return best


def rows(function: Function, quick: Callable[[float], float]) -> tuple[list[list[float]], Any]:
    """Piece j is for (j - 1/2) / 8 to (j + 1/2) / 8: its centre c, f(c), f'(c), and the rest of f(c + d) divided by d.

    Each but the first two is off by what no float can say; also the greatest error that all this means.
    """
    found, worst = [], mpf(0)
    for j in range(PIECES):
        c = centre(quick, j / 8) if j else 0.0
        value, slope = mp.taylor(function, mpf(c), 1)
        base, rise = single(value), single(slope)

        def rest(d: Any, c: float = c, value: Any = value, rise: float = rise) -> Any:
            return (function(mpf(c) + d) - value - rise * d) / d

        tail, off = fitted(rest, mpf(j - 0.5) / 8 - c, mpf(j + 0.5) / 8 - c, TERMS, abs)
        worst = max(worst, off + abs(value - base))
        found.append([c, base, rise, *tail])
    return found, worst


def arrays(name: str, what: str, numbers: list[list[float]], worst: Any) -> str:
    out = f"\n/* {what}, to 2^{int(mp.ceil(mp.log(worst, 2)))} */\n"
    for part, column in zip(PARTS, zip(*numbers, strict=True), strict=True):
        out += array(f"{name}_{part}", [list(column[k : k + 8]) for k in range(0, PIECES, 8)])
    return out


def page() -> str:
    mp.prec = BITS
    erf = arrays("erf", "erf(a)", *rows(mp.erf, math.erf))
    falling = arrays("falling", "1 / (1 + e^a)", *rows(lambda a: 1 / (1 + mp.exp(a)), lambda a: 1 / (1 + math.exp(a))))
    return f"{HEAD}{erf}{falling}\n#endif\n"


if __name__ == "__main__":
    sys.exit(write(PAGE, page()))

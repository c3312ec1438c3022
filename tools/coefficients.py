"""Write native/functions/coefficients.h: the polynomials and constants behind the functions of class R.

Each polynomial interpolates at Chebyshev points, in 200 bits; the relative error that its rounded coefficients
mean stands beside it. `python tools/coefficients.py` writes the file; `--check` only looks. Needs mpmath, which
torch brings along.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from mpmath import mp, mpf  # type: ignore[import-untyped]

PAGE = Path(__file__).resolve().parents[1] / "native" / "functions" / "coefficients.h"
BITS = 200

HEAD = """/* Written by tools/coefficients.py: change that. */
/* clang-format off */
#ifndef SAMERUN_COEFFICIENTS_H
#define SAMERUN_COEFFICIENTS_H

#include "../portable.h"
"""

Function = Callable[[Any], Any]


def interpolate_coefficients(function: Function, low: Any, high: Any, terms: int) -> list[float]:
    """Coefficients, rounded to double, of the polynomial with `terms` terms through Chebyshev points."""
    middle, half = (low + high) / 2, (high - low) / 2
    points = [middle + half * mp.cos(mp.pi * (2 * i + 1) / (2 * terms)) for i in range(terms)]
    matrix = mp.matrix(terms, terms)
    for i, point in enumerate(points):
        for j in range(terms):
            matrix[i, j] = point**j
    return [float(value) for value in mp.lu_solve(matrix, mp.matrix([function(point) for point in points]))]


def series_remainder(function: Function, *head: Any) -> Function:
    """The series of `function` at 0 without its first terms, divided by the power that is left."""

    def value(x: Any) -> Any:
        with mp.workprec(4 * BITS):
            return (function(x) - mp.polyval(list(reversed(head)), x)) / x ** len(head)

    return value


def write_estrin_scheme(coefficients: list[float]) -> tuple[list[str], str]:
    """Lines and the expression of a polynomial in z, adjacent pairs first: short chains of fma."""
    lines, terms, power, n = [], [c.hex() for c in coefficients], "z", 0
    while len(terms) > 1:
        n += 1
        paired = [f"fma64({terms[i + 1]}, {power}, {terms[i]})" for i in range(0, len(terms) - 1, 2)]
        terms = paired + terms[2 * len(paired) :]
        if len(terms) > 1:
            names = [f"p{n}_{i}" for i in range(len(terms))]
            lines += [f"const double {name} = {term};" for name, term in zip(names, terms, strict=True)]
            lines.append(f"const double z{2**n} = {power} * {power};")
            terms, power = names, f"z{2**n}"
    return lines, terms[0]


def write_polynomial(name: str, text: str, function: Function, low: Any, high: Any, terms: int, share: Function) -> str:
    """One polynomial as a C function of z. `share(z)`: how much of the result an error of the polynomial is."""
    low, high = mpf(low), mpf(high)
    found = interpolate_coefficients(function, low, high, terms)
    worst = mpf(0)
    for i in range(400):
        z = low + (high - low) * (mpf(i) + mpf("0.37")) / 400
        got = mp.polyval([mpf(c) for c in reversed(found)], z)
        worst = max(worst, abs((got / function(z) - 1) * share(z)))
    lines, result = write_estrin_scheme(found)
    body = "".join(f"    {line}\n" for line in [*lines, f"return {result};"])
    size = int(mp.ceil(mp.log(worst, 2)))
    return f"\n/* {text}: to 2^{size} */\nPORTABLE double {name}(double z) {{\n{body}}}\n"


def write_split_constant(name: str, value: Any, parts: int, bits: int = 53) -> str:
    """A constant as a sum of doubles; all but the last have `bits` bits."""
    lines = ""
    for i in range(parts):
        last = i == parts - 1
        with mp.workprec(53 if last else bits):
            part = +value
        lines += f"#define {name}_{i} {float(part).hex()}\n"
        value = value - part
    return lines


def write_two_over_pi() -> str:
    """The bits of 2/pi after the point, 32 in a word."""
    with mp.workprec(400):
        whole = int(mp.floor(2 / mp.pi * mpf(2) ** 320))
    words = [f"0x{whole >> (320 - 32 * (i + 1)) & 0xFFFFFFFF:08X}U" for i in range(10)]
    return f"#define TWO_OVER_PI_WORDS {{{', '.join(words)}}}\n"


def write_page() -> str:
    mp.prec = BITS
    ln2, one = mp.log(2), mpf(1)
    s2 = (mp.sqrt(2) - 1) / (mp.sqrt(2) + 1)  # also tan(pi/8)^2

    def whole(_: Any) -> Any:
        return one

    def root(function: Function) -> Function:
        return lambda z: function(mp.sqrt(z)) / mp.sqrt(z)

    def log_rest(z: Any) -> Any:
        s = mp.sqrt(z)
        return series_remainder(lambda s: mp.log((1 + s) / (1 - s)), 0, 2, 0)(s) if z else mpf(2) / 3

    def odd(function: Function) -> Function:
        return lambda z: series_remainder(function, 0, 1, 0)(mp.sqrt(z))

    def scaled_erfc(t: Any) -> Any:
        x = 3 * (1 + t) / (1 - t)
        return mp.exp(x * x) * mp.erfc(x)

    half = mpf("0.50001") * ln2
    texts = [
        write_split_constant("LN2", ln2, 2, 40),
        write_split_constant("LN2_PAIR", ln2, 2),
        write_split_constant("LOG2_E", 1 / ln2, 2),
        write_split_constant("LOG10_2", mp.log10(2), 2, 40),
        write_split_constant("LOG10_E", 1 / mp.log(10), 2),
        write_split_constant("HALF_PI", mp.pi / 2, 3),
        write_split_constant("QUARTER_PI", mp.pi / 4, 2),
        write_split_constant("TWO_OVER_PI", 2 / mp.pi, 1),
        write_two_over_pi(),
        write_polynomial(
            "exp_tail_polynomial",
            "(e^z - 1 - z) / z^2, |z| <= ln(2)/2",
            series_remainder(mp.exp, 1, 1),
            -half,
            half,
            10,
            lambda z: z * z / 2,
        ),
        write_polynomial(
            "exp2m1_over_z_polynomial",
            "(2^z - 1) / z, |z| <= 1/2",
            series_remainder(lambda z: mp.mpf(2) ** z, 1),
            "-0.5001",
            "0.5001",
            11,
            lambda z: z,
        ),
        write_polynomial(
            "log_tail_polynomial",
            "(log((1+s)/(1-s)) - 2s) / s^3, z = s^2",
            log_rest,
            0,
            s2 * s2 * one,
            8,
            lambda z: z / 3,
        ),
        write_polynomial(
            "sin_tail_polynomial", "(sin(x) - x) / x^3, z = x^2", odd(mp.sin), 0, (mp.pi / 4) ** 2, 7, lambda z: z / 6
        ),
        write_polynomial(
            "cos_tail_polynomial",
            "(cos(x) - 1 + x^2/2) / x^4, z = x^2",
            lambda z: series_remainder(mp.cos, 1, 0, mpf(-1) / 2, 0)(mp.sqrt(z)),
            0,
            (mp.pi / 4) ** 2,
            7,
            lambda z: z * z / 24,
        ),
        write_polynomial(
            "atan_tail_polynomial",
            "(atan(x) - x) / x^3, z = x^2, |x| <= tan(pi/8)",
            odd(mp.atan),
            0,
            s2 * one,
            13,
            lambda z: z / 3,
        ),
        write_polynomial(
            "asin_tail_polynomial",
            "(asin(x) - x) / x^3, z = x^2, |x| <= 1/2",
            odd(mp.asin),
            0,
            "0.25",
            15,
            lambda z: z / 6,
        ),
        write_polynomial(
            "erf_over_x_polynomial",
            "erf(x) / x, z = x^2 - 7.75, |x| <= 3.93",
            lambda z: root(mp.erf)(z + mpf("7.75")),
            "-7.75",
            "7.75",
            29,
            whole,
        ),
        write_polynomial(
            "scaled_erfc_polynomial",
            "erfc(x) e^(x^2), z = (x-3)/(x+3), 1/2 <= x <= 10.2",
            scaled_erfc,
            mpf(-5) / 7,
            mpf("7.2") / mpf("13.2"),
            21,
            whole,
        ),
    ]
    return HEAD + "\n" + "".join(texts) + "\n#endif\n"


def write_or_check(path: Path, text: str) -> int:
    """Write the page, or only say whether it is this one already (0) where the command says `--check`."""
    if "--check" in sys.argv:
        return int(path.read_text(encoding="utf-8") != text)
    path.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(write_or_check(PAGE, write_page()))

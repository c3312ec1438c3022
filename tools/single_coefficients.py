"""Write native/functions/float32_constants.h: the constants of functions of class R in single precision.

`python tools/single_coefficients.py` writes the file; `--check` only looks. Needs mpmath, which torch brings along.
"""

from __future__ import annotations

import struct
import sys
from pathlib import Path
from typing import Any

from coefficients import BITS, Function, series_remainder, write_or_check
from mpmath import mp, mpf  # type: ignore[import-untyped]

PAGE = Path(__file__).resolve().parents[1] / "native" / "functions" / "float32_constants.h"
ERF_STEPS, ERF_LAST = 128, 4

HEAD = """/* Written by tools/single_coefficients.py: change that. HIGH + LOW is a constant of 48 bits. */
/* clang-format off */
#ifndef SAMERUN_SINGLE_H
#define SAMERUN_SINGLE_H

#include <stdint.h>
"""


def round_to_float32(value: Any) -> float:
    """The nearest float32."""
    found: float = struct.unpack("<f", struct.pack("<f", float(value)))[0]
    return found


def float32_to_bits(value: float) -> int:
    found: int = struct.unpack("<I", struct.pack("<f", value))[0]
    return found


def split_into_two_float32(value: Any) -> tuple[float, float]:
    high = round_to_float32(value)
    return high, round_to_float32(value - mpf(high))


def format_float32(value: float) -> str:
    if value != value:
        return '__builtin_nanf("")'
    digits, exponent = value.hex().split("p")
    return f"{digits.rstrip('0').rstrip('.') if '.' in digits else digits}p{exponent}f"


def fit_float32_coefficients(
    function: Function, low: Any, high: Any, terms: int, weight: Function
) -> tuple[list[float], Any]:
    """Coefficients that are floats, by least squares at Chebyshev points, and the greatest weighted error.

    Each is rounded before the next ones are fitted, so that those make up for it.
    """
    count = 8 * terms
    angles = [mp.pi * (2 * i + 1) / (2 * count) for i in range(count)]
    points = [(low + high) / 2 + (high - low) / 2 * mp.cos(angle) for angle in angles]
    wanted, weights = [function(x) for x in points], [weight(x) for x in points]
    found: list[float] = []
    for first in range(terms):
        matrix = mp.matrix(count, terms - first)
        for i, x in enumerate(points):
            for j in range(first, terms):
                matrix[i, j - first] = weights[i] * x**j
        left = [
            share * (value - sum(mpf(c) * x**j for j, c in enumerate(found)))
            for x, value, share in zip(points, wanted, weights, strict=True)
        ]
        found.append(round_to_float32(mp.lu_solve(matrix, mp.matrix(left))[0]))
    off = [
        share * (value - sum(mpf(c) * x**j for j, c in enumerate(found)))
        for x, value, share in zip(points, wanted, weights, strict=True)
    ]
    return found, max(abs(each) for each in off)


def write_polynomial(
    name: str, what: str, function: Function, low: Any, high: Any, terms: int, weight: Function
) -> str:
    found, worst = fit_float32_coefficients(function, low, high, terms, weight)
    lines = "".join(f"#define {name}_{i} {format_float32(c)}\n" for i, c in enumerate(found))
    return f"\n/* {what}: to 2^{int(mp.ceil(mp.log(worst, 2)))} of the result */\n{lines}"


def write_two_part_constant(name: str, value: Any) -> str:
    high, low = split_into_two_float32(value)
    return f"#define {name}_HIGH {format_float32(high)}\n#define {name}_LOW {format_float32(low)}\n"


def write_float_array(name: str, rows: list[list[float]]) -> str:
    lines = "".join(f"    {', '.join(format_float32(value) for value in row)},\n" for row in rows)
    return f"static const float {name}[] __attribute__((aligned(64), unused)) = {{\n{lines}}};\n"


def write_uint32_array(name: str, values: list[int]) -> str:
    lines = "".join(f"    {', '.join(f'0x{v:08X}U' for v in values[i : i + 4])},\n" for i in range(0, len(values), 4))
    return f"static const uint32_t {name}[] __attribute__((aligned(64), unused)) = {{\n{lines}}};\n"


def compute_log_remainder(z: Any) -> Any:
    s = mp.sqrt(z)
    return series_remainder(lambda s: mp.log((1 + s) / (1 - s)), 0, 2, 0)(s)


def write_page() -> str:
    mp.prec = BITS
    ln2 = mp.log(2)
    eighth = mpf("0.0434")  # just over ln(2)/16
    bases = [round_to_float32(mpf(2) ** (mpf(j) / 8)) for j in range(8)]
    off = [round_to_float32(mp.log(mpf(base)) - j * ln2 / 8) for j, base in enumerate(bases)]
    # A base without its own eighths in the exponent: j << 20 is added with the exponent of the result.
    turned = [float32_to_bits(base) - (j << 20) for j, base in enumerate(bases)]
    centres = [mpf(j) / ERF_STEPS for j in range(ERF_STEPS * ERF_LAST + 1)]
    erf = [
        [*split_into_two_float32(mp.erf(c)), *split_into_two_float32(2 / mp.sqrt(mp.pi) * mp.exp(-c * c))]
        for c in centres
    ]
    with mp.workprec(16):
        ln2_short = +ln2
    s2 = ((mp.sqrt(2) - 1) / (mp.sqrt(2) + 1) * mpf("1.001")) ** 2
    return "".join(
        [
            HEAD,
            "\n/* e^x: 8/ln(2); ln(2)/8; floats b at about 2^(j/8), j < 8: the bits of b less j << 20, and\n",
            " * log(b) - j ln(2)/8 */\n",
            f"#define EIGHTHS_PER_UNIT {format_float32(round_to_float32(8 / ln2))}\n",
            write_two_part_constant("LN2_EIGHTH", ln2 / 8),
            write_uint32_array("power_bits", turned),
            write_float_array("power_off", [off[:4], off[4:]]),
            write_polynomial(
                "EXP_TAIL",
                "(e^z - 1 - z - z^2/2) / z^3, |z| <= ln(2)/16",
                series_remainder(mp.exp, 1, 1, mpf("0.5")),
                -eighth,
                eighth,
                3,
                lambda z: abs(z) ** 3,
            ),
            "\n/* log(x): ln(2), its high part of 16 bits */\n",
            f"#define LN2_SHORT {format_float32(round_to_float32(ln2_short))}\n"
            f"#define LN2_REST {format_float32(round_to_float32(ln2 - ln2_short))}\n",
            write_polynomial(
                "LOG_TAIL",
                "(log((1+s)/(1-s)) - 2s) / s^3, z = s^2",
                compute_log_remainder,
                mpf(10) ** -20,
                s2,
                4,
                lambda z: z / 2,
            ),
            "\n/* erf(c) and its derivative, high and low parts, at c = j/128 */\n",
            write_float_array("erf_row", erf),
            "\n#endif\n",
        ]
    )


if __name__ == "__main__":
    sys.exit(write_or_check(PAGE, write_page()))

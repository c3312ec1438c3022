"""Write native/functions/pieces_avx512.h, erf(a) / 2 and 1 / (1 + e^a) by 32 polynomials each, for AVX-512, and
pieces_avx2.h, erf(a) / 2 by 513 and 1 / (1 + e^a) by 8 polynomials, for AVX2.

`python tools/piece_coefficients.py` writes the files; `--check` only looks. Needs mpmath, which torch brings along.

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
from coefficients import BITS, write_or_check
from mpmath import mp, mpf  # type: ignore[import-untyped]
from single_coefficients import (
    fit_float32_coefficients,
    float32_to_bits,
    format_float32,
    round_to_float32,
    write_float_array,
    write_two_part_constant,
    write_uint32_array,
)

FOLDER = Path(__file__).resolve().parents[1] / "native" / "functions"
POWERS, POWER_MORE = 32, 2.0**-36

HEAD = """/* Written by tools/piece_coefficients.py: change that. {pieces} pieces each, the j-th about {about}:
 * f(centre + d) is value + d (slope + d (rest_1 + d (rest_2 + ...))). */
/* clang-format off */
#ifndef SAMERUN_{name}_H
#define SAMERUN_{name}_H
"""


class PieceTable(NamedTuple):
    """A function; the same and its slope in double precision."""

    name: str
    what: str
    exact: Callable[[Any], Any]
    quick: Callable[[torch.Tensor], torch.Tensor]
    slope: Callable[[torch.Tensor], torch.Tensor]
    more: float  # than `value`, which is a multiple of the next, if that is not 0
    multiple: float
    lost: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]  # by centres and how far from them d goes
    terms: int
    first: float  # the centre of piece 0 and its value are multiples of it
    ends: bool  # the last piece is NaN
    pieces: int
    step: float  # from one piece to the next
    tries: int  # centres in a window
    window: Callable[[float], float]  # how far to both sides of a place to look
    bend: Callable[[torch.Tensor], torch.Tensor] | None = None  # rest_1, if it too is to be nearly a float

    @property
    def reach(self) -> float:
        return self.step / 2


ERF = PieceTable(
    "erf",
    "erf(a) / 2",
    lambda a: mp.erf(a) / 2,
    lambda a: torch.erf(a) / 2,
    lambda a: torch.exp(-a * a) / math.sqrt(math.pi),
    1.2 * 2.0**-36,
    0,
    lambda c, far: 0.4 * 2.0**-28 * far**2,
    5,
    2.0**-28,  # the last bit of a at the end of it: then a - centre and value - result lose nothing
    False,
    32,
    1 / 8,
    1 << 19,
    lambda about: 1 / 16,
)
FALLING = PieceTable(
    "falling",
    "1 / (1 + e^a)",
    lambda a: 1 / (1 + mp.exp(a)),
    lambda a: 1 / (1 + torch.exp(a)),
    lambda a: -1 / ((1 + torch.exp(a)) * (1 + torch.exp(-a))),
    0,
    2.0**-24,  # then 1 - value is a float too
    lambda c, far: 1.2 * 2.0**-28 * far**2,
    4,
    0,
    True,
    32,
    1 / 8,
    1 << 19,
    lambda about: 1 / 16,
)


def compute_fourth_coefficient(c: torch.Tensor) -> torch.Tensor:
    """What d^4 is multiplied with in the series of erf(c + d) / 2."""
    return ERF.slope(c) * (c / 2 - c**3 / 3)


def estimate_row_loss(c: torch.Tensor, far: torch.Tensor) -> torch.Tensor:
    """By leaving out d^4, and rounding what d^2 is multiplied with."""
    return compute_fourth_coefficient(c).abs() * far**4 + ERF.slope(c) * far**2 * c * 2.0**-24


ERF_ROW = ERF._replace(
    # half of what leaving out d^4 loses at 1/256
    quick=lambda a: ERF.quick(a) + compute_fourth_coefficient(a) * 2.0**-33,
    more=2.8 * 2.0**-36,
    lost=estimate_row_loss,
    first=2.0**-32,
    pieces=513,
    step=1 / 128,
    tries=1 << 15,
    window=lambda about: min(1 / 16, about / 4),  # from farther away value - result would be rounded
)
FEW_FALLING = FALLING._replace(
    lost=lambda c, far: 2.0**-35 * (far * 15 / 4) ** 3,
    terms=6,
    pieces=8,
    step=8 / 15,
    tries=1 << 21,
    window=lambda about: 1 / 4,
    bend=lambda a: torch.tanh(a / 2) / (8 * torch.cosh(a / 2) ** 2),
)


def round_to_multiple(kind: PieceTable, value: torch.Tensor, multiple: float) -> torch.Tensor:
    value = value - kind.more
    return (value / multiple).round() * multiple if multiple else value.float().double()


def measure_rounding_errors(kind: PieceTable, c: torch.Tensor, multiple: float) -> torch.Tensor:
    """How far value and slope are from floats."""
    value, slope = kind.quick(c), kind.slope(c)
    lost = (value - kind.more - round_to_multiple(kind, value, multiple)).abs() + float32_error(slope) * kind.reach
    return lost if kind.bend is None else lost + float32_error(kind.bend(c)) * kind.reach**2


def float32_error(value: torch.Tensor) -> torch.Tensor:
    return (value - value.float().double()).abs()


def find_centre(kind: PieceTable, about: float) -> float:
    """A float near `about` where value and slope are nearly floats; away from it more is lost by rounding."""
    best, least, width = about, math.inf, kind.window(about)
    for _ in range(5):
        steps = 1 - 2 * torch.arange(kind.tries, dtype=torch.float64) / kind.tries
        c = (about + width * steps).float().double()
        lost = measure_rounding_errors(kind, c, kind.multiple) + kind.lost(c, kind.reach + (c - about).abs())
        if lost.min().item() < least:
            best, least = c[lost.argmin()].item(), lost.min().item()
        width /= 2
    return best


def find_first_centre(kind: PieceTable) -> float:
    """So near 0 that what value - result loses where that is less than half of value does not matter."""
    if not kind.first:
        return 0.0
    c = torch.arange(round(2.0**-15 / kind.first), round(2.0**-11 / kind.first), dtype=torch.float64) * kind.first
    return c[measure_rounding_errors(kind, c, kind.first).argmin()].item()


def compute_rows(kind: PieceTable) -> tuple[list[list[float]], Any]:
    """Piece j is for (j - 1/2) steps to (j + 1/2) steps: its centre, value, slope and the other coefficients.

    Also the greatest error of all that these are not exactly.
    """
    found, worst = [], mpf(0)
    for j in range(kind.pieces):
        c = find_centre(kind, j * kind.step) if j else find_first_centre(kind)
        multiple = kind.multiple if j else kind.first or kind.multiple
        value, slope = mp.taylor(kind.exact, mpf(c), 1)
        start, rise = (
            round_to_multiple(kind, torch.tensor(float(value), dtype=torch.float64), multiple).item(),
            round_to_float32(slope),
        )

        def rest(d: Any, c: float = c, value: Any = value, slope: Any = slope) -> Any:
            return (kind.exact(mpf(c) + d) - value - slope * d) / d**2

        ends = max(mpf(j - 0.5) * kind.step, 0) - c, mpf(j + 0.5) * kind.step - c
        tail, off = fit_float32_coefficients(rest, *ends, kind.terms, lambda d: d**2)
        if kind.ends and j == kind.pieces - 1:
            found.append([c, math.nan, rise, *tail])
            continue
        worst = max(worst, off + abs(value - kind.more - start) + abs(slope - rise) * 1.6 * kind.reach)
        found.append([c, start, rise, *tail])
    return found, worst


def write_arrays(kind: PieceTable) -> str:
    numbers, worst = compute_rows(kind)
    more = f", which is {format_float32(kind.more)[:-1]} more" if kind.more else ""
    out = f"\n/* {kind.what}{more}; to 2^{int(mp.ceil(mp.log(worst, 2)))} */\n"
    parts = ["centre", "value", "slope", *(f"rest_{i + 1}" for i in range(kind.terms))]
    for part, column in zip(parts, zip(*numbers, strict=True), strict=True):
        out += write_float_array(f"{kind.name}_{part}", [list(column[k : k + 8]) for k in range(0, kind.pieces, 8)])
    return out


def compute_erf_row(j: int) -> list[float]:
    """c, value, slope and (2 c^2 - 1) / 3. The value is 1/2 where erf is rounded to 1, and NaN just before: no centre
    will do there."""
    kind, about = ERF_ROW, torch.tensor(j * ERF_ROW.step, dtype=torch.float64)
    c, multiple = (find_centre(kind, about.item()), 0) if j else (find_first_centre(kind), kind.first)
    at = torch.tensor(c, dtype=torch.float64)
    lost = measure_rounding_errors(kind, at, multiple) + kind.lost(at, kind.reach + (at - about).abs())
    if lost.item() > 1.4 * kind.more:
        rounded = ERF.quick(about - kind.reach).item() > 0.5 - 2.0**-26
        return [about.item(), 0.5 if rounded else math.nan, 0.0, 0.0]
    slope, second = round_to_float32(mp.diff(kind.exact, mpf(c))), round_to_float32((2 * mpf(c) ** 2 - 1) / 3)
    return [c, round_to_multiple(kind, kind.quick(at), multiple).item(), slope, second]


def write_erf_rows() -> str:
    what = f"{ERF_ROW.what}, which is about {format_float32(ERF_ROW.more)[:-1]} more"
    head = f"\n/* {what}: c about j / 128, value, slope, (2 c^2 - 1) / 3 */\n"
    return head + write_float_array("half_erf_row", [compute_erf_row(j) for j in range(ERF_ROW.pieces)])


def write_power_table() -> str:
    """A base is about 2^(j / 32); its bits, less j << 18, are added with those of the power of two."""
    step = mp.log(2) / POWERS
    bases = [round_to_float32(mpf(2) ** (mpf(j) / POWERS)) for j in range(POWERS)]
    off = [round_to_float32(mp.log(mpf(base)) - j * step + POWER_MORE) for j, base in enumerate(bases)]
    return "".join(
        [
            "\n/* 32/ln(2); ln(2)/32; floats b at about 2^(j/32): the bits of b less j << 18, and\n",
            f" * log(b) - j ln(2)/32 and {format_float32(POWER_MORE)[:-1]} more */\n",
            f"#define PIECES_PER_UNIT {format_float32(round_to_float32(1 / step))}\n",
            write_two_part_constant("LN2_PIECE", step),
            write_uint32_array("piece_bits", [float32_to_bits(base) - (j << 18) for j, base in enumerate(bases)]),
            write_float_array("piece_off", [off[k : k + 8] for k in range(0, POWERS, 8)]),
        ]
    )


def write_page(name: str, kinds: list[PieceTable], more: str) -> str:
    """A header of this name."""
    pieces, step = kinds[0].pieces, kinds[0].step
    head = HEAD.format(pieces=pieces, about=f"j / {round(1 / step, 6):g}", name=name)
    return f"{head}{''.join(write_arrays(kind) for kind in kinds)}{more}\n#endif\n"


def write_both_pages() -> int:
    mp.prec = BITS
    many = write_page("PIECES", [ERF, FALLING], write_power_table())
    few = write_page("FEW_PIECES", [FEW_FALLING], write_erf_rows())
    return max(write_or_check(FOLDER / "pieces_avx512.h", many), write_or_check(FOLDER / "pieces_avx2.h", few))


if __name__ == "__main__":
    sys.exit(write_both_pages())

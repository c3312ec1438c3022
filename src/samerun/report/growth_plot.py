"""The growth of a difference as a plot: steps to the right, the relative difference upwards by powers of ten."""

from __future__ import annotations

import math
from dataclasses import dataclass

from samerun.base.records import Growth

WIDTH, HEIGHT = 640, 220
LEFT, RIGHT, TOP, BOTTOM = 70, 20, 14, 34


@dataclass(frozen=True)
class Mark:
    """A place in the drawing, with the text that belongs there."""

    x: float
    y: float
    text: str


@dataclass(frozen=True)
class Plot:
    """What the page draws. `line`: the points of the curve, as SVG writes them."""

    points: tuple[Mark, ...]
    line: str
    left: tuple[Mark, ...]
    below: tuple[Mark, ...]


def plot(growth: tuple[Growth, ...]) -> Plot | None:
    """None where fewer than two steps have a relative difference to show."""
    shown = [(one, math.log10(one.relative)) for one in growth if one.relative]
    if len(shown) < 2:
        return None
    low, high = math.floor(min(y for _, y in shown)), math.ceil(max(y for _, y in shown))
    high = max(high, low + 1)
    first, last = shown[0][0].step, shown[-1][0].step

    def across(step: int) -> float:
        return round(LEFT + (WIDTH - LEFT - RIGHT) * (step - first) / (last - first), 2)

    def up(power: float) -> float:
        return round(TOP + (HEIGHT - TOP - BOTTOM) * (high - power) / (high - low), 2)

    points = tuple(
        Mark(across(one.step), up(power), f"step {one.step}: relative {one.relative:.2g}"
             + (f", up to {one.max_ulp} ulp" if one.max_ulp is not None else ""))
        for one, power in shown
    )  # fmt: skip
    every = max(1, math.ceil((high - low) / 6))
    left = tuple(Mark(LEFT - 8, up(power), f"1e{power}") for power in range(low, high + 1, every))
    middle = shown[len(shown) // 2][0].step
    below = tuple(Mark(across(step), HEIGHT - 12, str(step)) for step in dict.fromkeys((first, middle, last)))
    return Plot(points, " ".join(f"{one.x},{one.y}" for one in points), left, below)

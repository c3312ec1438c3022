"""The report of a check as one HTML file: no network, no script, readable offline, in the dark and on paper."""

from __future__ import annotations

import linecache
import math
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

from samerun.base.records import CheckReport, Divergence, Growth, NeutralResult
from samerun.base.text import escape_and_truncate_for_terminal
from samerun.report.terminal import describe_divergence, describe_neutral_divergence, describe_ulp

CONTEXT = 4
MOST_GROUPS = 120


@dataclass(frozen=True)
class ExcerptLine:
    number: int
    text: str
    marked: bool


@dataclass(frozen=True)
class StepGroup:
    """Some consecutive steps. `part`: the share of them that differ, from 0 to 1."""

    first: int
    last: int
    part: float


def check_report_to_html(report: CheckReport, version: str, machine: dict[str, Any]) -> str:
    """The whole page. Whatever comes from the user's program is escaped."""
    return render_page(
        "check.html.jinja",
        report=report,
        version=version,
        machine=machine,
        command=" ".join(report.command),
        excerpt=read_source_excerpt,
        ulp=describe_ulp,
        cells=group_steps_evenly(report.spread) if report.spread is not None else [],
        plot=make_growth_plot(report.spread.growth) if report.spread is not None else None,
        neutral_plot=make_neutral_plot,
        neutral_numbers=describe_neutral_divergence,
        told=describe_divergence(report.spread) if report.spread is not None else [],
    )


def render_page(template: str, **values: Any) -> str:
    """A page from one of the templates here, with the common style. All of `values` is escaped."""
    environment = Environment(
        autoescape=True,
        finalize=_escape_control_characters_unless_markup,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    room = files("samerun.report")
    text, style = (room.joinpath(name).read_text(encoding="utf-8") for name in (template, "page.css"))
    return environment.from_string(text).render(style=Markup(style), **values)


def _escape_control_characters_unless_markup(value: Any) -> Any:
    return value if isinstance(value, Markup) or not isinstance(value, str) else escape_and_truncate_for_terminal(value)


def read_source_excerpt(file: str, line: int) -> list[ExcerptLine]:
    """The line with its neighbours; empty where the file cannot be read."""
    linecache.checkcache(file)
    numbers = range(max(1, line - CONTEXT), line + CONTEXT + 1)
    texts = ((number, linecache.getline(file, number)) for number in numbers)
    found = [ExcerptLine(number, text.rstrip("\n"), number == line) for number, text in texts if text]
    return found if any(one.marked for one in found) else []


def group_steps_evenly(divergence: Divergence) -> list[StepGroup]:
    """The steps in at most `MOST_GROUPS` groups of equal size."""
    size = -(-divergence.steps // MOST_GROUPS)
    found = []
    for first in range(1, divergence.steps + 1, size):
        last = min(first + size - 1, divergence.steps)
        hit = sum(max(0, min(last, b) - max(first, a) + 1) for a, b in divergence.different)
        found.append(StepGroup(first, last, hit / (last - first + 1)))
    return found


# --- the plot of a growing difference --------------------------------------------------------------------------
WIDTH, HEIGHT = 640, 220
LEFT, RIGHT, TOP, BOTTOM = 70, 20, 14, 34


@dataclass(frozen=True)
class PlotLabel:
    """A position in the drawing and its text."""

    x: float
    y: float
    text: str


@dataclass(frozen=True)
class GrowthPlot:
    """What the page draws. `line`: the points of the curve, as SVG writes them; `envelope`: those of another."""

    points: tuple[PlotLabel, ...]
    line: str
    left: tuple[PlotLabel, ...]
    below: tuple[PlotLabel, ...]
    envelope: str = ""


def make_growth_plot(growth: tuple[Growth, ...]) -> GrowthPlot | None:
    """The relative difference of the parameters over steps, on a log scale."""
    told = [f"relative {g.relative:.2g}" + (f", {describe_ulp(g.max_ulp)}" if g.max_ulp is not None else "")
            for g in growth if g.relative]  # fmt: skip
    return make_log_plot([(one.step, one.relative) for one in growth if one.relative], told)


def make_neutral_plot(result: NeutralResult) -> GrowthPlot | None:
    """How far the two sides are apart over steps, and the envelope as a second line."""
    points = [(point.step, point.apart) for point in result.points if point.apart]
    envelope = [(point.step, point.disturbed) for point in result.points if point.disturbed]
    return make_log_plot(points, [f"relative {apart:.2g}" for _, apart in points], envelope)


def make_log_plot(
    values_by_step: list[tuple[int, float]],
    point_texts: list[str],
    other_values_by_step: list[tuple[int, float]] | None = None,
) -> GrowthPlot | None:
    """Values over steps, on a log scale, with a text for each, and another curve; None for fewer than two steps."""
    shown = [(step, math.log10(value)) for step, value in values_by_step]
    others = [(step, math.log10(value)) for step, value in other_values_by_step or ()]
    if len(shown) < 2:
        return None
    every_power = [y for _, y in (*shown, *others)]
    low, high = math.floor(min(every_power)), math.ceil(max(every_power))
    high = max(high, low + 1)
    first, last = min(step for step, _ in (*shown, *others)), max(step for step, _ in (*shown, *others))

    def across(step: int) -> float:
        return round(LEFT + (WIDTH - LEFT - RIGHT) * (step - first) / (last - first), 2)

    def up(power: float) -> float:
        return round(TOP + (HEIGHT - TOP - BOTTOM) * (high - power) / (high - low), 2)

    points = tuple(
        PlotLabel(across(step), up(power), f"step {step}: {text}")
        for (step, power), text in zip(shown, point_texts, strict=True)
    )
    every = max(1, math.ceil((high - low) / 6))
    left = tuple(PlotLabel(LEFT - 8, up(power), f"1e{power}") for power in range(low, high + 1, every))
    middle = shown[len(shown) // 2][0]
    below = tuple(PlotLabel(across(step), HEIGHT - 12, str(step)) for step in dict.fromkeys((first, middle, last)))
    line, second = (" ".join(f"{across(s)},{up(p)}" for s, p in each) for each in (shown, others))
    return GrowthPlot(points, line, left, below, second)

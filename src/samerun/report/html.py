"""The report as one HTML file: no network, no script, readable offline, in the dark and on paper."""

from __future__ import annotations

import linecache
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

from samerun.base.records import CheckReport, Spread
from samerun.base.text import fit
from samerun.report.growth_plot import plot
from samerun.report.terminal import told

CONTEXT = 4
MOST_CELLS = 120


@dataclass(frozen=True)
class Line:
    number: int
    text: str
    marked: bool


@dataclass(frozen=True)
class Cell:
    """Some steps in a row. `part`: how many of them differ, from 0 to 1."""

    first: int
    last: int
    part: float


def to_html(report: CheckReport, version: str, machine: dict[str, Any]) -> str:
    """The whole page. Whatever comes from the user's program is escaped."""
    return rendered(
        "check.html.jinja",
        report=report,
        version=version,
        machine=machine,
        command=" ".join(report.command),
        excerpt=excerpt,
        cells=cells(report.spread) if report.spread is not None else [],
        plot=plot(report.spread.growth) if report.spread is not None else None,
        told=told(report.spread) if report.spread is not None else [],
    )


def rendered(template: str, **values: Any) -> str:
    """A page of this room, with the style that all pages have. Whatever stands in `values` is escaped."""
    environment = Environment(
        autoescape=True, finalize=_fit, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    room = files("samerun.report")
    text, style = (room.joinpath(name).read_text(encoding="utf-8") for name in (template, "page.css"))
    return environment.from_string(text).render(style=Markup(style), **values)


def _fit(value: Any) -> Any:
    return value if isinstance(value, Markup) or not isinstance(value, str) else fit(value)


def excerpt(file: str, line: int) -> list[Line]:
    """The line with its neighbours; empty where the file cannot be read."""
    linecache.checkcache(file)
    numbers = range(max(1, line - CONTEXT), line + CONTEXT + 1)
    found = [Line(n, linecache.getline(file, n).rstrip("\n"), n == line) for n in numbers if linecache.getline(file, n)]
    return found if any(one.marked for one in found) else []


def cells(spread: Spread) -> list[Cell]:
    """The steps in at most `MOST_CELLS` groups of equal size."""
    size = -(-spread.steps // MOST_CELLS)
    found = []
    for first in range(1, spread.steps + 1, size):
        last = min(first + size - 1, spread.steps)
        hit = sum(max(0, min(last, b) - max(first, a) + 1) for a, b in spread.different)
        found.append(Cell(first, last, hit / (last - first + 1)))
    return found

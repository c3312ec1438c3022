"""The numbers of `samerun cost` as one HTML file: no network, no script, readable offline and on paper."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from samerun.base.cost_records import CostReport
from samerun.report.cost import operator_cell, quantity, told, whole_rows
from samerun.report.html import rendered


@dataclass(frozen=True)
class Bar:
    """One operator under one setting; `width`: of the longest bar, from 0 to 100."""

    setting: str
    width: float
    text: str


@dataclass(frozen=True)
class Row:
    """One operator: how often it is called as the program is, its bars, and what it adds to the peak of memory."""

    operator: str
    calls: str
    bars: tuple[Bar, ...]
    memory: tuple[str, ...]


def to_html(report: CostReport, version: str, machine: dict[str, Any], top: int) -> str:
    """The whole page. Whatever comes from the user's program is escaped."""
    return rendered(
        "cost.html.jinja",
        report=report,
        version=version,
        machine=machine,
        command=" ".join(report.command),
        whole=whole_rows(report),
        rows=rows(report, top),
        told=told(report, top),
    )


def rows(report: CostReport, top: int) -> list[Row]:
    shown = report.operators[:top]
    longest = max((cost.seconds for _, costs in shown for cost in costs if cost is not None), default=0.0)
    found = []
    for name, costs in shown:
        bars = tuple(
            Bar(setting.name, round(100 * cost.seconds / longest, 2) if longest else 0.0, operator_cell(cost, costs[0]))
            for setting, cost in zip(report.settings, costs, strict=True)
            if cost is not None
        )
        memory = tuple(quantity(cost.peak_bytes, "B") if cost is not None else "-" for cost in costs)
        calls = " / ".join(str(cost.calls) if cost is not None else "-" for cost in costs)
        found.append(Row(name, calls, bars, memory))
    return found

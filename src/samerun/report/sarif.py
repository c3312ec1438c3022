"""The findings of a check as SARIF 2.1.0, which code hosts show as annotations at the lines of a change."""

from __future__ import annotations

import json
from pathlib import PurePath
from typing import Any
from urllib.parse import quote

from samerun.base.records import DIFFERENT, CheckReport

SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
CAUSES_PAGE = "https://samerun.github.io/samerun/causes/"
NO_CAUSE = "unexplained-difference"
"""The rule of a difference of which no cause was named."""


def check_report_to_sarif(report: CheckReport, version: str) -> str:
    """One SARIF log with a result for each hazard that counts; ends with a newline."""
    results = _collect_results(report)
    rules = sorted({result["ruleId"] for result in results})
    driver = {
        "name": "samerun",
        "version": version,
        "informationUri": "https://github.com/samerun/samerun",
        "rules": [
            {"id": rule, "helpUri": CAUSES_PAGE if rule == NO_CAUSE else f"{CAUSES_PAGE}#{rule}"} for rule in rules
        ],
    }
    log = {"$schema": SCHEMA, "version": "2.1.0", "runs": [{"tool": {"driver": driver}, "results": results}]}
    return json.dumps(log, indent=2) + "\n"


def _collect_results(report: CheckReport) -> list[dict[str, Any]]:
    if report.verdict != DIFFERENT:
        return []
    hazards = [one for one in report.causes if not one.ignored]
    results = [
        _make_result(
            one.kind, one.certain, (*one.evidence, *([one.fix.summary] if one.fix else [])), one.file, one.line
        )
        for one in hazards
    ]
    cause, first = report.cause, report.first_difference
    if not results and cause is not None:
        words = (*cause.evidence, *([report.fix.summary] if report.fix else []))
        results = [_make_result(cause.kind, cause.certain, words, cause.file, cause.line)]
    if not results and first is not None:
        words = (f"{first.operator} differs first, in step {first.step}",)
        results = [_make_result(NO_CAUSE, True, words, first.file, first.line)]
    return results


def _make_result(rule: str, certain: bool, message_parts: tuple[str, ...], file: str, line: int) -> dict[str, Any]:
    how = "confirmed by experiment" if certain else "a suspect"
    result: dict[str, Any] = {
        "ruleId": rule,
        "level": "error" if certain else "warning",
        "message": {"text": f"{rule} ({how}): {'; '.join(message_parts)}"},
    }
    if file:
        place: dict[str, Any] = {"artifactLocation": {"uri": quote(PurePath(file).as_posix())}}
        if line > 0:
            place["region"] = {"startLine": line}
        result["locations"] = [{"physicalLocation": place}]
    return result

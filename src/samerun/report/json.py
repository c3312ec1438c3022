"""The report as JSON."""

from __future__ import annotations

import json
from typing import Any

from samerun.base.records import CheckReport


def to_json(report: CheckReport, version: str) -> str:
    """One JSON object, keys in a fixed order, ending with a newline."""
    return json.dumps(report.to_dict(version), indent=2, allow_nan=False, default=_plain) + "\n"


def _plain(value: Any) -> Any:
    raise TypeError(f"{type(value).__name__} is not part of the report's schema")

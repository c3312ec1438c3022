"""The console that reports are printed to, and the end of a command: its record shown, written as JSON, or both."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from samerun.base.files import write_to_file_or_stdout
from samerun.base.records import CheckReport

if TYPE_CHECKING:
    from samerun.report.terminal import ReportConsole


def write_json_and_show_unless_to_stdout(
    record: dict[str, Any],
    show: Callable[[dict[str, Any], ReportConsole], None],
    json_path_or_dash: str | None,
    quiet: bool,
) -> None:
    """Have `show` print the record, and write it as JSON if that is wanted.

    Nothing is printed if `quiet`, or if the JSON goes to standard output ("-"). Raises SamerunError if it cannot be
    written.
    """
    if not quiet and json_path_or_dash != "-":
        from samerun.report.terminal import ReportConsole  # loads rich, which a quiet command does not need

        show(record, ReportConsole())
    if json_path_or_dash is not None:
        write_to_file_or_stdout("--json", json_path_or_dash, json.dumps(record, indent=2, sort_keys=True) + "\n")


def check_report_to_json(report: CheckReport, version: str) -> str:
    """One JSON object, keys in a fixed order, ending with a newline."""
    return json.dumps(report.to_dict(version), indent=2, allow_nan=False, default=_raise_not_serializable) + "\n"


def _raise_not_serializable(value: Any) -> Any:
    raise TypeError(f"{type(value).__name__} is not part of the report's schema")

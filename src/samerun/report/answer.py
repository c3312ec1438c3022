"""The end of a command: its record for people, for programs, or both."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from samerun.base.result_file import write_result
from samerun.report.console import Console


def answer(record: dict[str, Any], show: Callable[[dict[str, Any], Console], None], json_to: str | None,
           quiet: bool) -> None:  # fmt: skip
    """Have `show` print the record, and write it as JSON where that is wanted.

    Nothing is printed if `quiet`, or if the JSON goes to standard output ("-"). Raises SamerunError where it cannot
    be written.
    """
    if not quiet and json_to != "-":
        show(record, Console())
    if json_to is not None:
        write_result("--json", json_to, json.dumps(record, indent=2, sort_keys=True) + "\n")

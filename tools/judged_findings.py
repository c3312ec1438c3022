"""Recount tests/lint/judged_findings.csv: what share of the findings on public code is right, by rule.

    python tools/judged_findings.py             print the table
    python tools/judged_findings.py --check     exit 1 if a default rule, or all of them, are right too seldom

What verdicts and groups mean stands in tests/lint/README.md.
"""

from __future__ import annotations

import csv
import sys
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

from samerun.lint.table import RULES

ROOT = Path(__file__).resolve().parents[1]
JUDGED = ROOT / "tests" / "lint" / "judged_findings.csv"
FIELDS = ("group", "repository", "commit", "file", "line", "rule", "verdict", "reason")
MIN_PRECISION_OF_ALL, MIN_PRECISION_OF_A_RULE = 0.95, 0.9
VERDICTS = ("right", "wrong", "mended", "lost")
AT_MOST = 5
"""So many findings of one rule in one repository count in the second column: copies of one script weigh less."""


def read_judged_findings(path: Path = JUDGED) -> list[dict[str, str]]:
    """The rows, by column. Raises ValueError for a row that is not complete."""
    with path.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    for number, row in enumerate(rows, 2):
        if tuple(row) != FIELDS or not all(row.values()) or row["verdict"] not in VERDICTS:
            raise ValueError(f"{path.name}, line {number}: {row}")
    return rows


def count_right(rows: Iterable[dict[str, str]]) -> tuple[int, int]:
    """How many are right, and how many there are."""
    verdicts = [row["verdict"] for row in rows]
    return verdicts.count("right") + verdicts.count("lost"), len(verdicts)


def limit_repetitions(rows: Iterable[dict[str, str]]) -> list[dict[str, str]]:
    """At most a few findings of one rule in one repository, the first ones."""
    counted: dict[tuple[str, str], int] = defaultdict(int)
    kept = []
    for row in rows:
        key = row["repository"], row["rule"]
        counted[key] += 1
        if counted[key] <= AT_MOST:
            kept.append(row)
    return kept


def format_share(right: int, count: int) -> str:
    return f"{right} of {count} ({right / count:.2f})" if count else "none"


def main(arguments: list[str]) -> int:
    rows = read_judged_findings()
    default = {rule.code for rule in RULES if rule.default}
    wrong = []
    for group in dict.fromkeys(row["group"] for row in rows):
        seen = group.startswith("round")  # what was on by default then
        of_group = [row for row in rows if row["group"] == group and (seen or row["rule"] in default)]
        repositories = len({row["repository"] for row in of_group})
        right, count = count_right(of_group)
        print(f"{group}: {format_share(right, count)} in {repositories} repositories with findings,"
              f" without repetition {format_share(*count_right(limit_repetitions(of_group)))}")  # fmt: skip
        if group == "tuning" and right < MIN_PRECISION_OF_ALL * count:
            wrong.append("all default rules")
    for rule in RULES:
        of_rule = [row for row in rows if row["rule"] == rule.code and row["verdict"] in ("right", "wrong")]
        right, count = count_right(of_rule)
        state = "" if rule.default else ", off by default"
        print(f"  {rule.code} {rule.name}{state}: {format_share(right, count)}")
        if rule.default and right < MIN_PRECISION_OF_A_RULE * count:
            wrong.append(rule.code)
    if wrong:
        print(f"right too seldom: {', '.join(wrong)}")
    return int(bool(wrong) and "--check" in arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

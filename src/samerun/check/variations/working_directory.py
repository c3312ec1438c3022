"""The path of the working directory."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from samerun.check.plan import Plan, Variation
from samerun.check.variations.surroundings import why_not_copied


def working_directory(plan: Plan, vary: bool) -> Plan:
    """Vary where the program runs: in its folder, then in a copy of it elsewhere.

    What can go wrong: a path becomes a key, a name to sort by, or a seed.
    """
    return replace(plan, copied=vary)


VARIATION = Variation(
    "working_directory", "environment", "as it is -> a copy of it elsewhere", working_directory,
    "environment-variable", lambda plan: why_not_copied(Path.cwd()), may_fail=True,
)  # fmt: skip

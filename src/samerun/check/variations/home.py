"""The path of the home directory."""

from __future__ import annotations

import os
from dataclasses import replace

from samerun.check.plan import Plan, Variation


def home(plan: Plan, vary: bool) -> Plan:
    """Vary the path of the home directory. The other one links to everything the real one holds.

    What can go wrong: a path below the home directory becomes a name to sort by, or a seed.
    """
    return replace(plan, other_home=vary)


VARIATION = Variation(
    "home", "environment", "HOME as it is -> another path to the same", home, "environment-variable",
    lambda plan: "" if os.path.isdir(os.path.expanduser("~")) else "there is no home directory", may_fail=True,
)  # fmt: skip

"""The language of the machine: how texts sort and numbers look."""

from __future__ import annotations

import functools
import subprocess

from samerun.base.programs import find_program
from samerun.check.plan import Plan, Variation

CONTROL = "C.UTF-8"
WANTED = ("tr_TR.utf8", "de_DE.utf8", "fr_FR.utf8", "sv_SE.utf8", "et_EE.utf8")


@functools.cache
def other_locale() -> str:
    """Another locale that this machine has; "POSIX" where it has no other."""
    program = find_program("locale")
    if program is None:
        return "POSIX"
    listed = subprocess.run([program, "-a"], capture_output=True, text=True, check=False).stdout.split()
    known = {name.lower().replace("-", ""): name for name in listed}
    for name in WANTED:
        if name.lower() in known:
            return known[name.lower()]
    others = sorted(n for n in listed if n.lower().endswith(("utf8", "utf-8")) and n[:2] not in ("C.", "en"))
    return others[0] if others else "POSIX"


def locale(plan: Plan, vary: bool) -> Plan:
    """Vary the locale.

    What can go wrong: names sorted by the locale's rules, numbers parsed with the locale's comma.
    """
    value = other_locale() if vary else CONTROL
    return plan.with_environment(LC_ALL=value, LANG=value)


VARIATION = Variation("locale", "environment", f"LC_ALL {CONTROL} -> {other_locale()}", locale, "environment-variable")

"""The permissions of new files."""

from __future__ import annotations

from dataclasses import replace

from samerun.check.plan import Plan, Variation


def umask(plan: Plan, vary: bool) -> Plan:
    """Vary the permissions that new files get.

    What can go wrong: files are chosen by what may be read or written.
    """
    return replace(plan, umask=0o077 if vary else 0o022)


VARIATION = Variation("umask", "environment", "umask 022 -> 077", umask, "environment-variable")

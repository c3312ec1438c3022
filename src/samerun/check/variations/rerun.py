"""Nothing at all: the same command once more."""

from samerun.check.plan import Plan, Variation


def rerun(plan: Plan, vary: bool) -> Plan:
    """Vary nothing. What differs now, differs by itself: entropy, time, threads, operators."""
    return plan


VARIATION = Variation("rerun", "rerun", "the same command again", rerun, "")

"""The timezone of the machine."""

from samerun.check.plan import Plan, Variation

CONTROL, OTHER = "UTC0", "XST-11:45XDT,M4.1.0,M10.5.0"


def timezone(plan: Plan, vary: bool) -> Plan:
    """Vary the timezone (a made-up one, +11:45 with summer time, that needs no time zone files).

    What can go wrong: timestamps in the data become features in local time; a split is made by day.
    """
    return plan.with_environment(TZ=OTHER if vary else CONTROL)


VARIATION = Variation("timezone", "environment", "TZ UTC -> +11:45 with summer time", timezone, "environment-variable")

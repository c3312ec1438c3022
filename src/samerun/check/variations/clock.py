"""The date and the time of day."""

from samerun.check.plan import Plan, Variation

SHIFT_SECONDS = 34_567_891.0
"""A little over 400 days: another year, month, day, weekday, hour, minute and second."""


def clock(plan: Plan, vary: bool) -> Plan:
    """Vary every clock by 400 days and some hours.

    What can go wrong: a seed is made of the date; a split depends on the weekday.
    """
    return plan.with_watch(clock_shift=SHIFT_SECONDS if vary else 0.0)


VARIATION = Variation("clock", "environment", "clocks shifted by 400 d 2 h 4 min 51 s", clock, "time")

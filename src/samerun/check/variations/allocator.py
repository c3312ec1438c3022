"""How Python and C hand out memory."""

from samerun.check.plan import Plan, Variation


def allocator(plan: Plan, vary: bool) -> Plan:
    """Vary the allocator: Python's own and one heap, then malloc for everything with room between.

    What can go wrong: objects lie in another order, and whatever is ordered by address with them.
    """
    if not vary:
        return plan
    return plan.with_environment(PYTHONMALLOC="malloc", MALLOC_TOP_PAD_="1048577", MALLOC_ARENA_MAX="1")


VARIATION = Variation("allocator", "environment", "Python's allocator -> malloc", allocator, "object-id")

"""What fresh memory holds before anything is written to it."""

from samerun.check.plan import Plan, Variation


def memory(plan: Plan, vary: bool) -> Plan:
    """Vary the contents of fresh tensors and arrays.

    What can go wrong: padding made by ``torch.empty`` is never written and is read all the same.
    """
    return plan.with_watch(memory="pattern" if vary else "zeros")


VARIATION = Variation(
    "memory", "environment", "fresh memory filled with 0 -> with 3 and 2.71875", memory, "uninitialised-memory"
)

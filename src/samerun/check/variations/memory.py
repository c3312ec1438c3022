"""What fresh memory holds before anything is written to it."""

from samerun.check.plan import Plan, Variation

MALLOC_BYTE = 0x03


def memory(plan: Plan, vary: bool) -> Plan:
    """Vary the contents of fresh tensors and arrays.

    What can go wrong: padding made by ``torch.empty`` is never written and is read all the same.
    """
    # Tensors and arrays that the program makes are filled from inside. What operators allocate for
    # themselves is malloc's: glibc fills it with the complement of the last byte of this number.
    perturb = str(0xFF ^ MALLOC_BYTE) if vary else str(0xFF)
    return plan.with_watch(fresh_memory="pattern" if vary else "zeros").with_environment(MALLOC_PERTURB_=perturb)


VARIATION = Variation(
    "memory", "environment", "fresh memory filled with 0 -> with 3 and 2.71875", memory, "uninitialised-memory"
)

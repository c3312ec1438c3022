"""The number of threads torch computes with."""

from __future__ import annotations

import os

from samerun.check.plan import Plan, Variation


def threads(plan: Plan, vary: bool) -> Plan:
    """Vary the number of threads: as the machine gives it, then one.

    What can go wrong: long sums and some gradients are split by thread, and their last bits with them.
    Control leaves the number alone: it is the user's.
    """
    if not vary:
        return plan
    return plan.with_environment(OMP_NUM_THREADS="1", MKL_NUM_THREADS="1")


VARIATION = Variation(
    "threads", "shape", "threads as they are -> 1", threads, "thread-count",
    lambda plan: "this machine has one core" if (os.cpu_count() or 1) < 2 else "",
)  # fmt: skip

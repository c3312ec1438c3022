"""The program interrupted and gone on with, against the program run through."""

from samerun.check.plan import Plan, Variation


def resume(plan: Plan, vary: bool) -> Plan:
    """Vary whether the program is interrupted: once through, then stopped and resumed from its checkpoint.

    What can go wrong: the checkpoint lacks a generator's state, the position in the data, the schedule.
    How to stop it and how to go on is said with ``--interrupt`` and ``--resume``; without them it is skipped.
    """
    return plan


VARIATION = Variation(
    "resume", "shape", "once through -> interrupted and resumed", resume, "resume-position",
    lambda plan: "say how to interrupt and to resume: --interrupt \"NAME=VALUE ...\" --resume \"NAME=VALUE ...\"",
)  # fmt: skip

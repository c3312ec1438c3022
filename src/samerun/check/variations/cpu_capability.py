"""The instructions that kernels are made of, which stand for another CPU."""

from __future__ import annotations

import platform

from samerun.base.machine import OLDEST_INSTRUCTIONS
from samerun.check.plan import Plan, Variation


def cpu_capability(plan: Plan, vary: bool) -> Plan:
    """Vary the instruction set that torch, MKL and oneDNN use: the best of this CPU, then the oldest.

    What can go wrong: wider vectors sum in another order and functions have other polynomials, so that
    another CPU model gives other last bits. Plain torch does not promise them; portable operators do.
    """
    if not vary:
        return plan
    return plan.with_environment(**OLDEST_INSTRUCTIONS)


def unavailable(plan: Plan) -> str:
    known = platform.machine().lower() in ("x86_64", "amd64", "i686")
    return "" if known else f"the instruction set of {platform.machine()} cannot be lowered"


VARIATION = Variation(
    "cpu_capability", "machine", "the best instructions of this CPU -> the oldest", cpu_capability,
    "cpu-capability", unavailable,
)  # fmt: skip

"""Where the system puts a program's memory."""

from __future__ import annotations

import functools
import platform
import subprocess
from dataclasses import replace

from samerun.base.programs import find_program
from samerun.check.plan import Plan, Variation


def address_layout(plan: Plan, vary: bool) -> Plan:
    """Vary the addresses of objects: the system places memory at random, the control run turns that off.

    What can go wrong: a sort by ``id()``, or a set of objects, follows the addresses. They follow the hash
    seed too, so vary (and thereby pin) ``hash_seed`` together with this.
    """
    if vary:
        return plan
    return replace(plan, prefix=(*plan.prefix, *fixed_layout()))


def fixed_layout() -> tuple[str, ...]:
    """The command in front of a program that turns the random placement off."""
    return (find_program("setarch") or "setarch", platform.machine(), "-R")


@functools.cache
def why_not() -> str:
    """The reason why the layout cannot be fixed here, or ""."""
    if find_program("setarch") is None:
        return "setarch, which fixes the layout, is not installed"
    command = [*fixed_layout(), find_program("true") or "true"]
    tried = subprocess.run(command, capture_output=True, text=True, check=False)
    return "" if tried.returncode == 0 else "the system does not let setarch fix the layout"


VARIATION = Variation(
    "address_layout", "environment", "addresses fixed -> random", address_layout, "object-id",
    lambda plan: why_not(),
)  # fmt: skip

"""Where the system puts a program's memory."""

from __future__ import annotations

import functools
import platform
import shutil
import subprocess
from dataclasses import replace

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
    return ("setarch", platform.machine(), "-R")


@functools.cache
def why_not() -> str:
    """The reason why the layout cannot be fixed here, or ""."""
    if shutil.which("setarch") is None:
        return "setarch, which fixes the layout, is not installed"
    tried = subprocess.run([*fixed_layout(), "true"], capture_output=True, text=True, check=False)
    return "" if tried.returncode == 0 else "the system does not let setarch fix the layout"


VARIATION = Variation(
    "address_layout", "environment", "addresses fixed -> random", address_layout, "object-id",
    lambda plan: why_not(),
)  # fmt: skip

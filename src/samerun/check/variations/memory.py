"""A process's memory: its contents when fresh, the allocator, and the addresses."""

from __future__ import annotations

import functools
import platform
import subprocess
from dataclasses import replace

from samerun.base.launch import find_trusted_program
from samerun.check.plan import RunPlan, Variation

# What fresh memory holds before anything is written to it.
MALLOC_BYTE = 0x03


def vary_or_zero_fresh_memory(plan: RunPlan, vary: bool) -> RunPlan:
    """Vary the contents of fresh tensors and arrays.

    What can go wrong: padding made by ``torch.empty`` is never written and is read all the same.
    """
    # Tensors and arrays that the program makes are filled from inside. What operators allocate for
    # themselves is malloc's: glibc fills it with the complement of the last byte of this number.
    perturb = str(0xFF ^ MALLOC_BYTE) if vary else str(0xFF)
    return plan.with_watch(fresh_memory="pattern" if vary else "zeros").with_environment(MALLOC_PERTURB_=perturb)


def stop_varying_malloc_memory(plan: RunPlan) -> RunPlan:
    """The plan of a run with varied memory, in which only tensors and arrays that the program makes are varied.

    They can be varied at one line; malloc's memory is varied for the whole process or not at all.
    """
    return plan.with_environment(MALLOC_PERTURB_=str(0xFF))


def vary_malloc_memory_alone(plan: RunPlan) -> RunPlan:
    """The plan of a run with varied memory, in which only what malloc gives to libraries is varied."""
    return plan.with_watch(varied_line=("memory", "", -1))  # no line


MEMORY = Variation(
    "memory",
    "environment",
    "fresh memory filled with 0 -> with 3 and 2.71875",
    vary_or_zero_fresh_memory,
    "uninitialised-memory",
)


# How Python and C hand out memory.
def vary_or_leave_allocator(plan: RunPlan, vary: bool) -> RunPlan:
    """Vary the allocator: Python's own and one heap, then malloc for everything with room between.

    What can go wrong: objects lie in another order, and whatever is ordered by address with them.
    """
    if not vary:
        return plan
    return plan.with_environment(PYTHONMALLOC="malloc", MALLOC_TOP_PAD_="1048577", MALLOC_ARENA_MAX="1")


ALLOCATOR = Variation("allocator", "environment", "Python's allocator -> malloc", vary_or_leave_allocator, "object-id")


# Where the system puts a program's memory.
def vary_or_pin_address_layout(plan: RunPlan, vary: bool) -> RunPlan:
    """Vary the addresses of objects: the system places memory at random, the control run turns that off.

    What can go wrong: a sort by ``id()``, or a set of objects, follows the addresses. They follow the hash
    seed too, so vary (and thereby pin) ``hash_seed`` together with this.
    """
    if vary:
        return plan
    return replace(plan, prefix=(*plan.prefix, *setarch_command_disabling_aslr()))


def setarch_command_disabling_aslr() -> tuple[str, ...]:
    """The command in front of a program that turns the random placement off."""
    return (find_trusted_program("setarch") or "setarch", platform.machine(), "-R")


@functools.cache
def why_aslr_cannot_be_disabled() -> str:
    """The reason why the layout cannot be fixed here, or ""."""
    if find_trusted_program("setarch") is None:
        return "setarch, which fixes the layout, is not installed"
    command = [*setarch_command_disabling_aslr(), find_trusted_program("true") or "true"]
    tried = subprocess.run(command, capture_output=True, text=True, check=False)
    return "" if tried.returncode == 0 else "the system does not let setarch fix the layout"


ADDRESS_LAYOUT = Variation(
    "address_layout", "environment", "addresses fixed -> random", vary_or_pin_address_layout, "object-id",
    lambda plan: why_aslr_cannot_be_disabled(),
)  # fmt: skip

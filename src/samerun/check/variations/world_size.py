"""The number of ranks that torchrun starts."""

from __future__ import annotations

import os
from dataclasses import replace

from samerun.check.plan import Plan, Variation

OPTIONS = ("--nproc-per-node", "--nproc_per_node")


def world_size(plan: Plan, vary: bool) -> Plan:
    """Vary the number of ranks: one fewer than the program is started with, two where it is one.

    What can go wrong: each rank draws from its own stream, takes its share of the data by its number, and
    gradients are summed in another order. Compared is what rank 0's model holds after each step and at the end.
    """
    found = ranks(plan.command)
    if not vary or found is None:
        return plan
    at, count = found
    word = plan.command[at]
    other = str(count - 1 if count > 1 else 2)
    changed = f"{word.split('=')[0]}={other}" if "=" in word else other
    command = (*plan.command[:at], changed, *plan.command[at + 1 :])
    return replace(plan, command=command).with_scope("ranks")


def ranks(command: tuple[str, ...]) -> tuple[int, int] | None:
    """(position in the command line, number of ranks); None where torchrun is not what is started."""
    if not any(os.path.basename(word) == "torchrun" or word == "torch.distributed.run" for word in command):
        return None
    for at, word in enumerate(command):
        name, equals, value = word.partition("=")
        if name not in OPTIONS:
            continue
        if not equals:
            at, value = at + 1, command[at + 1] if at + 1 < len(command) else ""
        return (at, int(value)) if value.isdigit() else None
    return None


def unavailable(plan: Plan) -> str:
    if ranks(plan.command) is None:
        return "the program is not started by torchrun with --nproc-per-node N"
    return ""


VARIATION = Variation(
    "world_size", "shape", "ranks as they are -> one fewer, 1 -> 2", world_size, "world-size", unavailable,
    may_fail=True,
)  # fmt: skip

"""How child processes start."""

from __future__ import annotations

import multiprocessing

from samerun.check.plan import Plan, Variation
from samerun.record.trace.run import RunTraces


def process_start(plan: Plan, vary: bool) -> Plan:
    """Vary how `multiprocessing` starts processes: forked with the parent's memory, or from nothing.

    What can go wrong: a forked child inherits generators and globals, a spawned one makes them anew. A
    program that cannot be spawned (no ``if __name__ == "__main__"``) is told so, which is no difference.
    """
    return plan.with_watch(start_method=methods()[1]).with_scope("children") if vary else plan


def methods() -> tuple[str, str]:
    """Python's own choice here, and the other one."""
    first = multiprocessing.get_all_start_methods()[0]
    return first, "fork" if first != "fork" else "spawn"


def pointless(traces: RunTraces) -> str:
    alone = not any("/" in role for role in traces.traces)
    return "the program starts no processes with Python" if alone else ""


def unavailable(plan: Plan) -> str:
    return "" if len(multiprocessing.get_all_start_methods()) > 1 else "this system can only spawn"


VARIATION = Variation(
    "process_start", "shape", "processes as Python starts them -> the other way (fork, spawn)",
    process_start, "worker-seed", unavailable, pointless,
    may_fail=True,
)  # fmt: skip

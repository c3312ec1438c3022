"""The processes of a program: DataLoader workers, how child processes start, ranks."""

from __future__ import annotations

import multiprocessing
import os
from dataclasses import replace
from typing import NamedTuple

from samerun.check.plan import RunPlan, Variation
from samerun.record.trace import format as f
from samerun.record.trace.run import RunTraces, count_events


# The number of DataLoader workers.
def vary_or_leave_workers(plan: RunPlan, vary: bool) -> RunPlan:
    """Vary `num_workers` of every DataLoader: one more than the program says, two where it has none.

    What can go wrong: augmentations drawn in the workers, whose seeds depend on the worker's number; an
    IterableDataset that every worker reads from the start. Compared are the batches and what is made of
    them, not what happens in the workers.
    """
    return plan.with_watch(extra_workers=True).with_comparison_limits("workers") if vary else plan


def reason_if_no_data_loader(traces: RunTraces) -> str:
    made = any(count_events(trace, f.LOADER) for trace in traces.traces.values())
    return "" if made else "the program makes no DataLoader"


WORKERS = Variation(
    "workers", "shape", "num_workers as it is -> one more, 0 -> 2", vary_or_leave_workers, "worker-count",
    pointless=reason_if_no_data_loader,
)  # fmt: skip


# How child processes start.
def vary_or_leave_process_start(plan: RunPlan, vary: bool) -> RunPlan:
    """Vary how `multiprocessing` starts processes: forked with the parent's memory, or from nothing.

    What can go wrong: a forked child inherits generators and globals, a spawned one makes them anew. A
    program that cannot be spawned (no ``if __name__ == "__main__"``) is told so, which is no difference.
    """
    return (
        plan.with_watch(start_method=default_and_other_start_method()[1]).with_comparison_limits("children")
        if vary
        else plan
    )


def default_and_other_start_method() -> tuple[str, str]:
    """Python's own choice here, and the other one."""
    first = multiprocessing.get_all_start_methods()[0]
    return first, "fork" if first != "fork" else "spawn"


def why_process_start_cannot_matter(traces: RunTraces) -> str:
    alone = not any("/" in role for role in traces.traces)
    return "the program starts no processes with Python" if alone else ""


def why_process_start_unavailable(plan: RunPlan) -> str:
    return "" if len(multiprocessing.get_all_start_methods()) > 1 else "this system can only spawn"


PROCESS_START = Variation(
    "process_start", "shape", "processes as Python starts them -> the other way (fork, spawn)",
    vary_or_leave_process_start, "worker-seed", why_process_start_unavailable, why_process_start_cannot_matter,
    may_fail=True,
)  # fmt: skip


# The number of ranks that torchrun starts.
RANK_COUNT_OPTIONS = ("--nproc-per-node", "--nproc_per_node")


def vary_or_leave_world_size(plan: RunPlan, vary: bool) -> RunPlan:
    """Vary the number of ranks: one fewer than the program is started with, two where it is one.

    What can go wrong: each rank draws from its own stream, takes its share of the data by its number, and
    gradients are summed in another order. Compared is what rank 0's model holds after each step and at the end.
    """
    found = find_torchrun_rank_count_option(plan.command)
    if not vary or found is None:
        return plan
    at, count = found
    word = plan.command[at]
    other = str(count - 1 if count > 1 else 2)
    changed = f"{word.split('=')[0]}={other}" if "=" in word else other
    command = (*plan.command[:at], changed, *plan.command[at + 1 :])
    return replace(plan, command=command).with_comparison_limits("ranks")


class RankCountOption(NamedTuple):
    """Where a command line says how many ranks there are. `word_index`: the word that holds the number."""

    word_index: int
    rank_count: int


def find_torchrun_rank_count_option(command: tuple[str, ...]) -> RankCountOption | None:
    """The option of torchrun; None where torchrun is not what is started."""
    if not any(os.path.basename(word) == "torchrun" or word == "torch.distributed.run" for word in command):
        return None
    for at, word in enumerate(command):
        name, equals, value = word.partition("=")
        if name not in RANK_COUNT_OPTIONS:
            continue
        if not equals:
            at, value = at + 1, command[at + 1] if at + 1 < len(command) else ""
        return RankCountOption(at, int(value)) if value.isdigit() else None
    return None


def why_world_size_unavailable(plan: RunPlan) -> str:
    if find_torchrun_rank_count_option(plan.command) is None:
        return "the program is not started by torchrun with --nproc-per-node N"
    return ""


WORLD_SIZE = Variation(
    "world_size", "shape", "ranks as they are -> one fewer, 1 -> 2", vary_or_leave_world_size, "world-size",
    why_world_size_unavailable, may_fail=True,
)  # fmt: skip

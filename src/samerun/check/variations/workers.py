"""The number of DataLoader workers."""

from samerun.check.plan import Plan, Variation
from samerun.record.trace import format as f
from samerun.record.trace.run import RunTraces, count_events


def workers(plan: Plan, vary: bool) -> Plan:
    """Vary `num_workers` of every DataLoader: one more than the program says, two where it has none.

    What can go wrong: augmentations drawn in the workers, whose seeds depend on the worker's number; an
    IterableDataset that every worker reads from the start. Compared are the batches and what is made of
    them, not what happens in the workers.
    """
    return plan.with_watch(extra_workers=True).with_scope("workers") if vary else plan


def pointless(traces: RunTraces) -> str:
    made = any(count_events(trace, f.LOADER) for trace in traces.traces.values())
    return "" if made else "the program makes no DataLoader"


VARIATION = Variation(
    "workers", "shape", "num_workers as it is -> one more, 0 -> 2", workers, "worker-count", pointless=pointless,
)  # fmt: skip

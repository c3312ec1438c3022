"""The size of the batches in which samples are evaluated."""

from samerun.check.plan import Plan, Variation
from samerun.record.comparison.streams import ONLY_SAMPLE_ROWS
from samerun.record.trace import format as f
from samerun.record.trace.run import RunTraces, count_events


def batch_split(plan: Plan, vary: bool) -> Plan:
    """Vary `batch_size` of every `samerun.data.DataLoader` that is iterated without gradients: half as large.

    What can go wrong: kernels choose their order of summation by the number of rows; a batch norm is left in
    training mode; samples are padded to the longest beside them. Then what is computed of a sample depends on
    the samples beside it.

    With samerun's loader the samples are the same whatever the size of the batch. Compared is what is computed of
    each: the rows of every result that has one for each sample of its batch, over the whole pass. Loops that train
    are left alone, for another batch size is another training there.
    """
    watched = plan.with_watch(hash_rows=True)
    return watched.with_watch(split_batches=True).with_scope(ONLY_SAMPLE_ROWS) if vary else watched


def pointless(traces: RunTraces) -> str:
    seen = any(count_events(trace, f.ROWS) for trace in traces.traces.values())
    return "" if seen else "the program iterates over no samerun.data.DataLoader without gradients"


VARIATION = Variation(
    "batch_split", "shape", "batch_size as it is -> half, where nothing is trained", batch_split, "batch-size",
    pointless=pointless, may_fail=True,
)  # fmt: skip

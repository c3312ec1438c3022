"""How kernels compute: threads, instructions, rows at once."""

from __future__ import annotations

import os
import platform

from samerun.base.machine import OLDEST_INSTRUCTIONS
from samerun.check.plan import RunPlan, Variation
from samerun.record.comparison.streams import ONLY_SAMPLE_ROWS
from samerun.record.trace import format as f
from samerun.record.trace.run import RunTraces, count_events


# The number of threads torch computes with.
def vary_or_leave_threads(plan: RunPlan, vary: bool) -> RunPlan:
    """Vary the number of threads: as the machine gives it, then one.

    What can go wrong: long sums and some gradients are split by thread, and their last bits with them.
    Control leaves the number alone: it is the user's.
    """
    if not vary:
        return plan
    return plan.with_environment(OMP_NUM_THREADS="1", MKL_NUM_THREADS="1")


THREADS = Variation(
    "threads", "shape", "threads as they are -> 1", vary_or_leave_threads, "thread-count",
    lambda plan: "this machine has one core" if (os.cpu_count() or 1) < 2 else "",
)  # fmt: skip


# The instructions that kernels are made of, which stand for another CPU.
def vary_or_leave_cpu_capability(plan: RunPlan, vary: bool) -> RunPlan:
    """Vary the instruction set that torch, MKL and oneDNN use: the best of this CPU, then the oldest.

    What can go wrong: wider vectors sum in another order and functions have other polynomials, so that
    another CPU model gives other last bits. Plain torch does not promise them; portable operators do.
    """
    if not vary:
        return plan
    return plan.with_environment(**OLDEST_INSTRUCTIONS)


def why_cpu_capability_unavailable(plan: RunPlan) -> str:
    known = platform.machine().lower() in ("x86_64", "amd64", "i686")
    return "" if known else f"the instruction set of {platform.machine()} cannot be lowered"


CPU_CAPABILITY = Variation(
    "cpu_capability", "machine", "the best instructions of this CPU -> the oldest", vary_or_leave_cpu_capability,
    "cpu-capability", why_cpu_capability_unavailable,
)  # fmt: skip


# The size of the batches in which samples are evaluated.
def vary_or_leave_inference_batch_size(plan: RunPlan, vary: bool) -> RunPlan:
    """Vary `batch_size` of every `samerun.data.DataLoader` that is iterated without gradients: half as large.

    What can go wrong: kernels choose their order of summation by the number of rows; a batch norm is left in
    training mode; samples are padded to the longest beside them. Then what is computed of a sample depends on
    the samples beside it.

    With samerun's loader the samples are the same whatever the size of the batch. Compared is what is computed of
    each: the rows of every result that has one for each sample of its batch, over the whole pass. Loops that train
    are left alone, for another batch size is another training there.
    """
    watched = plan.with_watch(hash_rows=True)
    return watched.with_watch(split_batches=True).with_comparison_limits(ONLY_SAMPLE_ROWS) if vary else watched


def why_batch_split_cannot_matter(traces: RunTraces) -> str:
    seen = any(count_events(trace, f.ROWS) for trace in traces.traces.values())
    return "" if seen else "the program iterates over no samerun.data.DataLoader without gradients"


BATCH_SPLIT = Variation(
    "batch_split", "shape", "batch_size as it is -> half, where nothing is trained", vary_or_leave_inference_batch_size,
    "batch-size",
    pointless=why_batch_split_cannot_matter, may_fail=True,
)  # fmt: skip


# The batch around each row of a model that is called without gradients.
def vary_or_leave_batches(plan: RunPlan, vary: bool) -> RunPlan:
    """Vary the batch around each row, in models that are called without gradients: its size from 1 to 512, the row's
    position, the other rows, and padding where a mask is among the keywords.

    What can go wrong: kernels choose their order of summation, or another kernel, by the number of rows; a scale is
    computed over the whole batch; a batch norm is left in training mode; an expert is full; a mask leaks.

    In one run, each model is called again with such batches (up to four calls, each model once for each kind of
    arguments), as `samerun.batch_invariant` does, and its results for a row must have the same bits. The program itself
    gets what it always gets. Only by name, not part of `all`: in plain torch nearly every model has last bits that
    depend on the batch; inside `samerun.portable()` none should.
    """
    if not vary:
        return plan.with_watch(examine_batches="control")
    return plan.with_watch(examine_batches="varied").with_comparison_limits(ONLY_SAMPLE_ROWS)


def why_batches_cannot_matter(traces: RunTraces) -> str:
    seen = any(count_events(trace, f.ROWS) for trace in traces.traces.values())
    return "" if seen else "the program calls no model with a batch of tensors and without gradients"


BATCH = Variation(
    "batch", "batch", "the batch as it is -> other sizes, positions, rows and padding around each row",
    vary_or_leave_batches, "batch-size", pointless=why_batches_cannot_matter, only_by_name=True,
)  # fmt: skip

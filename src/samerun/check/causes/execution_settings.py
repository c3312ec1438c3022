"""Settings of the execution that decide the last bits: threads, instructions, batch size, ranks."""

from __future__ import annotations

import json

from samerun.check.causes.cause import Cause
from samerun.check.evidence.situation import Situation, Suspect
from samerun.record.trace import format as f
from samerun.record.trace.run import select_events
from samerun.record.watching.batch_invariance.report import BatchDependence
from samerun.record.watching.watched_operator import may_add_in_order_of_arrival


# The number of threads decides the last bits.
def find_thread_count_suspects(situation: Situation) -> list[Suspect]:
    event = situation.difference.a
    if situation.variation != "threads" or event is None or not situation.has_same_inputs_but_other_outputs:
        return []  # torch.get_num_threads() may also be a seed, or the number of parts of something
    if may_add_in_order_of_arrival(event.name):
        return []  # with the number of threads fixed it may differ all the same
    why = f"{event.name} at line {event.line} gives other bits with one thread"
    return [Suspect("thread-count", event.file, event.line, (why,), 0.0, certain=True)]


THREAD_COUNT = Cause(
    "thread-count",
    find_thread_count_suspects,
    "fix the number of threads: torch.set_num_threads(n), OMP_NUM_THREADS=n",
    "Long sums and some gradients are split by thread and added up afterwards; another number of threads is"
    " another order of summation.",
)


# The instructions a kernel is made of decide the last bits.
def find_cpu_capability_suspects(situation: Situation) -> list[Suspect]:
    event = situation.difference.a
    if situation.variation != "cpu_capability" or event is None or not situation.has_same_inputs_but_other_outputs:
        return []
    why = f"{event.name} at line {event.line} gives other bits with other instructions"
    return [Suspect("cpu-capability", event.file, event.line, (why,), 0.0, certain=True)]


CPU_CAPABILITY = Cause(
    "cpu-capability",
    find_cpu_capability_suspects,
    "expect other last bits on another CPU model; to have the same everywhere, use operators made for it"
    " (samerun.portable), or set ATEN_CPU_CAPABILITY=default and MKL_CBWR=COMPATIBLE on every machine",
    "Kernels for wider vectors sum in another order and compute functions in another way. Torch chooses them by"
    " the CPU it runs on, so that another machine gives other last bits, and training amplifies them.",
)


# How many rows are computed at once decides.
def find_batch_dependence_suspects(situation: Situation) -> list[Suspect]:
    event = situation.difference.a
    if event is None or event.kind != f.ROWS:
        return []
    if situation.variation == "batch":
        return find_batch_dependent_operator_suspects(situation)
    if situation.variation != "batch_split":
        return []
    short = event.name.removeprefix("aten.").split(".")[0].split("#")[0]
    if short == "DataLoader":
        why = f"the samples that the loader hands over at line {event.line} are other ones in smaller batches"
    else:
        why = f"{short} at line {event.line} gives other values for the same samples in smaller batches"
    return [Suspect("batch-size", event.file, event.line, (why,), 0.0)]


def find_batch_dependent_operator_suspects(situation: Situation) -> list[Suspect]:
    """What the variation `batch` found, in the order in which the model computes; see interceptors/batches.py."""
    suspects = []
    trace = situation.b.traces.traces.get(situation.difference.role)
    for event in select_events(trace, (f.ROWS,)) if trace is not None else ():
        found = json.loads(event.text) if event.text else None
        if found is None:
            continue
        if "operator" not in found:
            why = found.get("error") or "no operator that samerun sees makes the difference"
            suspects.append(
                Suspect("batch-size", event.file, event.line, (f"the model at line {event.line}: {why}",), 1.0)
            )
            continue
        one = BatchDependence(**{**found, "shows_under": tuple(found["shows_under"])})
        name, inside = one.operator.removeprefix("aten."), f" in {one.module}" if one.module else ""
        where = f"{name} at line {one.line}{inside} depends on the batch ({', '.join(one.shows_under)})"
        why = f"{where}: {one.describe_kind_and_difference()}"
        suspects.append(Suspect("batch-size", one.file, one.line, (why,), 0.0 if one.confirmed else 1.0))
    return suspects


BATCH_SIZE = Cause(
    "batch-size",
    find_batch_dependence_suspects,
    "keep the batch size, and call model.eval() before evaluating: batch statistics then play no part; where only"
    " rounding differs, samerun.portable() gives a row the same bits in every batch",
    "Kernels choose their order of summation by the size of the batch, so that the same row gives other last bits"
    " in a batch of another size. A batch norm left in training mode makes the result itself depend on the batch.",
)


# The number of ranks decides.
def find_world_size_suspects(situation: Situation) -> list[Suspect]:
    difference = situation.difference
    trace = situation.a.traces.traces.get(difference.role)
    if situation.variation != "world_size" or trace is None or difference.a is None:
        return []
    before = [e for e in select_events(trace, (f.OPERATOR,), difference.a.index) if e.line]
    file, line = (before[-1].file, before[-1].line) if before else ("", 0)
    why = f"step {difference.step} leaves other values in rank 0's model"
    return [Suspect("world-size", file, line, (why,), 0.0, certain=True)]


WORLD_SIZE = Cause(
    "world-size",
    find_world_size_suspects,
    "make the data of a step depend on the step alone, and sum gradients in a fixed order",
    "With another number of ranks each rank gets other samples, draws other numbers and averages gradients in"
    " another grouping. Unless a program is written for it, its model depends on the world size.",
)

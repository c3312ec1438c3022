"""Memory is read that nothing wrote."""

from __future__ import annotations

import os

from samerun.base.source_edits import ZEROED_CONSTRUCTORS, Edit, SourceAtLine, make_zeroed_constructor_edits
from samerun.check.causes.cause import Cause
from samerun.check.evidence.situation import Situation, Suspect
from samerun.record import pins
from samerun.record.trace import format as f
from samerun.record.trace.run import Event

MAX_SUSPECTED_LINES = 3
"""So many places at which memory was made are suspected; the experiments tell which."""


def find_uninitialised_memory_suspects(situation: Situation) -> list[Suspect]:
    event = situation.difference.a
    if event is None:
        return []
    flagged = event.kind == f.OPERATOR and bool(event.flags & f.UNINITIALISED)
    varied = situation.variation == "memory"
    held = () if varied else (pins.MEMORY,)
    if not flagged and not varied:
        return find_operator_internal_memory_suspects(situation, event)
    if situation.difference.what == "outputs" and not flagged:
        why = f"{event.name} at line {event.line} got the same inputs: the operator itself reads what nothing wrote"
        return [
            Suspect("uninitialised-memory", event.file, event.line, (why,), 0.5, held, varied, inside_operator=True)
        ]
    fresh = [e for e in situation.host_events_until_difference if e.kind == f.FRESH and e.line]
    if not fresh:
        return []
    read_here = [e for e in fresh if e.name == event.name]
    nearest = list({(e.file, e.line): e for e in [*fresh, *read_here]}.values())[::-1][:MAX_SUSPECTED_LINES]
    return [
        make_fresh_memory_suspect(made, event, 0.5 + 0.01 * rank, held, varied) for rank, made in enumerate(nearest)
    ]


def make_fresh_memory_suspect(
    allocation: Event, reader: Event, rank: float, memory_pins: tuple[str, ...], certain: bool
) -> Suspect:
    evidence = [f"memory made at line {allocation.line} is read before all of it was written"]
    if allocation.name != "numpy.empty":
        evidence.append(f"the first to read it is {allocation.name} at line {reader.line}")
    return Suspect(
        "uninitialised-memory", allocation.file, allocation.line, tuple(evidence), rank, memory_pins, certain
    )


def find_operator_internal_memory_suspects(situation: Situation, event: Event) -> list[Suspect]:
    """Other bits of the same inputs: an operator may read what nothing wrote in memory that it takes for itself.

    `torch.linalg.lstsq` does: the order in which LAPACK takes the columns comes from such memory. What lies there is
    often the same in two runs, as is what `torch.empty` returns. With one thread nothing races, so this comes first.
    """
    plan = situation.a.plan
    other = situation.difference.what == "outputs" and event.kind == f.OPERATOR
    if not other or event.flags & (f.FOREIGN_WRITE | f.NO_INPUTS | f.INEXACT):
        return []
    if situation.variation != "rerun" or plan.watch.fresh_memory is not None or not event.line:
        return []
    why = f"{event.name} got the same inputs in both runs and gave other bits: what memory held before may decide"
    threads = {**os.environ, **plan.environment}.get("OMP_NUM_THREADS")
    rank = 0.65 if threads == "1" else 0.75
    return [Suspect("uninitialised-memory", event.file, event.line, (why,), rank, (pins.MEMORY,), inside_operator=True)]


def replace_empty_with_zeros(source: SourceAtLine) -> list[Edit]:
    """`empty` becomes `zeros`."""
    calls = source.calls_spanning_line(*ZEROED_CONSTRUCTORS)
    return [edit for call in calls for edit in make_zeroed_constructor_edits(call)]


UNINITIALISED_MEMORY = Cause(
    "uninitialised-memory",
    find_uninitialised_memory_suspects,
    "use torch.zeros (or full, or write every element) instead of torch.empty; out= beside where= in NumPy's functions;"
    " driver='gelsd' for lstsq",
    "torch.empty, new_empty and numpy.empty return whatever the memory held before. Elements that are read"
    " without having been written differ from run to run and from machine to machine. NumPy's functions with where="
    " leave such elements in their result unless out= is given. A few operators read such"
    " memory of their own: torch.linalg.lstsq takes the order of the columns from it unless it is called with"
    " driver='gelsd'. torch.use_deterministic_algorithms(True) fills fresh memory, and so fixes both.",
    replace_empty_with_zeros,
)

"""The number of DataLoader workers decides what the data is."""

from __future__ import annotations

from samerun.check.causes.cause import Cause
from samerun.check.evidence.line_search import first_loop_line
from samerun.check.evidence.situation import Situation, Suspect
from samerun.check.evidence.varied_run_evidence import GLOBAL, worker_draws
from samerun.record.trace import format as f


def find(situation: Situation) -> list[Suspect]:
    if situation.variation != "workers":
        return []
    found = []
    for event in situation.host_events:
        if event.kind == f.LOADER and event.text == "iterable" and event.line:
            line = first_loop_line(event.file, event.line) or event.line
            why = "every worker goes through all of the IterableDataset: more workers give every item more often"
            found.append(Suspect("worker-count", event.file, line, (why,), 1.0, certain=True))
    for draw in worker_draws(situation):
        if draw.name in GLOBAL:
            why = f"{draw.text.removeprefix('aten.')} at line {draw.line} draws in a worker"
            more = "a worker's seed depends on its number, and which worker loads an item on how many there are"
            found.append(Suspect("worker-count", draw.file, draw.line, (why, more), 0.5, certain=True))
            break
    return found


CAUSE = Cause(
    "worker-count",
    find,
    "make what an item is depend on its index, the epoch and the seed alone; share out an IterableDataset with"
    " get_worker_info()",
    "Each DataLoader worker has its own seed (the loader's plus the worker's number) and its own copy of the"
    " dataset. Augmentations drawn from the global generators, and streams that are not shared out, therefore"
    " depend on num_workers.",
)

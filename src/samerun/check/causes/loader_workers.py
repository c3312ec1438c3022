"""DataLoader workers: how many there are, and how their generators are seeded."""

from __future__ import annotations

import ast

from samerun.base.seed_edits import SeedEditor
from samerun.base.source_edits import Edit, SourceAtLine
from samerun.check.causes.cause import Cause
from samerun.check.evidence.line_search import first_loop_line_in_function_or_zero
from samerun.check.evidence.situation import Situation, Suspect
from samerun.check.evidence.trace_signs import GLOBAL_GENERATORS, find_first_worker_draws
from samerun.record.trace import format as f
from samerun.record.trace.run import select_events


# The number of DataLoader workers decides what the data is.
def find_worker_count_suspects(situation: Situation) -> list[Suspect]:
    if situation.variation != "workers":
        return []
    found = []
    for event in situation.host_events_until_difference:
        if event.kind == f.LOADER and event.text == "iterable" and event.line:
            line = first_loop_line_in_function_or_zero(event.file, event.line) or event.line
            why = "every worker goes through all of the IterableDataset: more workers give every item more often"
            found.append(Suspect("worker-count", event.file, line, (why,), 1.0, certain=True))
    for draw in find_first_worker_draws(situation):
        if draw.name in GLOBAL_GENERATORS:
            why = f"{draw.text.removeprefix('aten.')} at line {draw.line} draws in a worker"
            more = "a worker's seed depends on its number, and which worker loads an item on how many there are"
            found.append(Suspect("worker-count", draw.file, draw.line, (why, more), 0.5, certain=True))
            break
    return found


WORKER_COUNT = Cause(
    "worker-count",
    find_worker_count_suspects,
    "make what an item is depend on its index, the epoch and the seed alone; share out an IterableDataset with"
    " get_worker_info()",
    "Each DataLoader worker has its own seed (the loader's plus the worker's number) and its own copy of the"
    " dataset. Augmentations drawn from the global generators, and streams that are not shared out, therefore"
    " depend on num_workers.",
)


# Every worker begins with a copy of the same generator, or of other memory of its parent.
def find_worker_seed_suspects(situation: Situation) -> list[Suspect]:
    if situation.variation not in ("workers", "process_start"):
        return []
    for draw in find_first_worker_draws(situation):
        if draw.name in GLOBAL_GENERATORS:
            continue
        main = situation.b.traces.main
        made = [
            e for e in (select_events(main, (f.CREATE, f.SEED)) if main is not None else [])
            if e.name == draw.name and e.line and e.inputs
        ]  # fmt: skip
        # A draw of torch's knows the seed of its generator: the line that gave it is the one meant.
        made = [e for e in made if e.inputs == draw.inputs] or made
        if made:
            why = (
                f"the generator made at line {made[-1].line} is copied into every worker",
                f"line {draw.line} draws from the copies: each worker draws the same numbers",
            )
            return [Suspect("worker-seed", made[-1].file, made[-1].line, why, 0.4, certain=True)]
    if situation.variation == "workers":
        return find_same_worker_seed_suspects(situation)
    started = [e for e in situation.host_events_until_difference if e.kind == f.FACT and e.name == f.PROCESS_STARTED]
    if situation.variation == "process_start" and started:
        why = (
            f"the process started at line {started[-1].line} inherits what the program has changed, or begins anew",
            "which of the two depends on how processes are started here",
        )
        return [Suspect("worker-seed", started[-1].file, started[-1].line, why, 1.0, certain=True)]
    return []


def find_same_worker_seed_suspects(situation: Situation) -> list[Suspect]:
    """A global generator that every worker seeds once with the same number, before it draws from it."""
    seeds: dict[tuple[str, str, int], dict[str, list[int]]] = {}
    drawn = set()
    for role, trace in situation.b.traces.traces.items():
        if "/loader" not in role:
            continue
        for event in select_events(trace, (f.SEED, f.DRAW)):
            if event.name not in GLOBAL_GENERATORS or not event.line:
                continue
            if event.kind == f.DRAW:
                drawn.add(event.name)
            elif event.direct:
                seeds.setdefault((event.name, event.file, event.line), {}).setdefault(role, []).append(event.inputs)
    for (name, file, line), workers in seeds.items():
        values = [value for each in workers.values() for value in each]
        once = all(len(each) == 1 for each in workers.values())
        if name in drawn and once and len(values) > 1 and len(set(values)) == 1:
            why = (
                f"every worker seeds {LIBRARY_NAMES[name]} generator at line {line} with the same number",
                "all workers then draw the same numbers, again from the start in every epoch",
            )
            return [Suspect("worker-seed", file, line, why, 0.4, certain=True)]
    return []


LIBRARY_NAMES = {"torch": "torch's", "numpy": "NumPy's", "python": "Python's"}


def seed_worker_from_loader(source: SourceAtLine) -> list[Edit]:
    """The seed that the loader gives a worker, in place of one number for all of them."""
    edits = []
    for call in source.calls_spanning_line("seed", "manual_seed"):
        if call.args and isinstance(call.args[0], ast.Constant) and not call.keywords:
            edits += SeedEditor(source.tree).make_edits_replacing_with_worker_seed(call.args[0])
    return edits


WORKER_SEED = Cause(
    "worker-seed",
    find_worker_seed_suspects,
    "seed the generator in each worker (worker_init_fn), or make it from (seed, epoch, index) for each item",
    "A generator that belongs to the dataset is copied into every DataLoader worker, state and all. All workers"
    " then draw the same numbers, again from the start in every epoch, and the data depends on how many there are.",
    seed_worker_from_loader,
)

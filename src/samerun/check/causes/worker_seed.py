"""Every worker begins with a copy of the same generator, or of other memory of its parent."""

from __future__ import annotations

from samerun.check.causes.cause import Cause
from samerun.check.situation import Situation, Suspect
from samerun.check.worker_draws import GLOBAL, worker_draws
from samerun.record import format as f
from samerun.record.run import events_of


def find(situation: Situation) -> list[Suspect]:
    if situation.variation not in ("workers", "process_start"):
        return []
    for draw in worker_draws(situation):
        if draw.name in GLOBAL:
            continue
        main = situation.b.traces.main
        made = [
            e for e in (events_of(main, (f.CREATE, f.SEED)) if main is not None else [])
            if e.name == draw.name and e.line and e.inputs
        ]  # fmt: skip
        if made:
            why = (
                f"the generator made at line {made[-1].line} is copied into every worker",
                f"line {draw.line} draws from the copies: each worker draws the same numbers",
            )
            return [Suspect("worker-seed", made[-1].file, made[-1].line, why, 0.4, certain=True)]
    started = [e for e in situation.host_events if e.kind == f.FACT and e.name == "Process.start"]
    if situation.variation == "process_start" and started:
        why = (
            f"the process started at line {started[-1].line} inherits what the program has changed, or begins anew",
            "which of the two depends on how processes are started here",
        )
        return [Suspect("worker-seed", started[-1].file, started[-1].line, why, 1.0, certain=True)]
    return []


CAUSE = Cause(
    "worker-seed",
    find,
    "seed the generator in each worker (worker_init_fn), or make it from (seed, epoch, index) for each item",
    "A generator that belongs to the dataset is copied into every DataLoader worker, state and all. All workers"
    " then draw the same numbers, again from the start in every epoch, and the data depends on how many there are.",
)

"""The number of threads decides the last bits."""

from __future__ import annotations

from samerun.check.causes.cause import Cause
from samerun.check.evidence.situation import Situation, Suspect


def find(situation: Situation) -> list[Suspect]:
    event = situation.difference.a
    if situation.variation != "threads" or event is None:
        return []
    why = f"{event.name} at line {event.line} gives other bits with one thread"
    return [Suspect("thread-count", event.file, event.line, (why,), 0.0, certain=True)]


CAUSE = Cause(
    "thread-count",
    find,
    "fix the number of threads: torch.set_num_threads(n), OMP_NUM_THREADS=n",
    "Long sums and some gradients are split by thread and added up afterwards; another number of threads is"
    " another order of summation.",
)

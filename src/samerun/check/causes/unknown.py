"""Nothing that was watched explains the difference."""

from __future__ import annotations

from samerun.check.causes.cause import Cause
from samerun.check.evidence.situation import Situation, Suspect
from samerun.record.trace import format as f

NOT_WATCHED = (
    "not watched, so it could be: a library written in C that seeds itself by the clock or the processor,"
    " sockets and pipes, shared memory,"
    " programs that are not Python, an address, a library's own threads"
)


def find(situation: Situation) -> list[Suspect]:
    return [*seeds(situation), first_place(situation)]


def seeds(situation: Situation) -> list[Suspect]:
    """A seed that is another number in each run, whatever it was made of."""
    for clue in situation.clues_of(f.SEED, f.CREATE):
        if not clue.a.unseeded and clue.a.line and clue.b is not None:
            why = f"{clue.a.name} is seeded at line {clue.a.line} with another value in each run"
            return [Suspect("unknown", clue.a.file, clue.a.line, (why,), 7.0)]
    return []


def first_place(situation: Situation) -> Suspect:
    event = situation.difference.event
    file, line = (event.file, event.line) if event is not None else ("", 0)
    why = {
        "inputs": "the inputs differ although no operator before gave another result: they come from outside torch",
        "scalars": "a number given to the operator differs",
        "leaf": "parameters differ although no operator did: something writes to them behind torch",
        "final": "a model differs at the end although no operator did: something writes to it behind torch",
    }.get(situation.difference.what, "nothing that was watched explains it")
    return Suspect("unknown", file, line, (why, NOT_WATCHED), 9.0)


CAUSE = Cause(
    "unknown",
    find,
    "look at where the values on this line come from",
    "The runs differ and samerun could not tell why. The line is where the difference first shows.",
)

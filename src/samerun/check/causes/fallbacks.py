"""The two causes that are named when no other is: another path through the program, and unknown."""

from __future__ import annotations

from samerun.check.causes.cause import Cause
from samerun.check.evidence.situation import Situation, Suspect
from samerun.record.trace import format as f


# The program took another path, and nothing that was watched says why.
def find_control_flow_suspects(situation: Situation) -> list[Suspect]:
    difference = situation.difference
    if difference.what not in ("operator", "process"):
        return []
    event = difference.a or difference.b
    if event is None:
        return [Suspect("control-flow", "", 0, (f"only one run has the process {difference.role}",), 8.0)]
    one = f"{difference.a.name} at line {difference.a.line}" if difference.a else "the end"
    other = f"{difference.b.name} at line {difference.b.line}" if difference.b else "the end"
    why = f"one run goes on with {one}, the other with {other}"
    return [Suspect("control-flow", event.file, event.line, (why,), 8.0)]


CONTROL_FLOW = Cause(
    "control-flow",
    find_control_flow_suspects,
    "look at the condition before this line: it depends on something that differs between the runs",
    "An if, a loop or an exception went another way. What it depends on was not among the things watched.",
)


# Nothing that was watched explains the difference.
NOT_WATCHED = (
    "not watched, so it could be: a library written in C that seeds itself by the clock or the processor,"
    " sockets and pipes, shared memory,"
    " programs that are not Python, an address, a library's own threads"
)


def find_unknown_suspects(situation: Situation) -> list[Suspect]:
    return [*find_differing_seed_suspects(situation), make_first_difference_suspect(situation)]


def find_differing_seed_suspects(situation: Situation) -> list[Suspect]:
    """A seed that is another number in each run, whatever it was made of."""
    for clue in situation.select_clues(f.SEED, f.CREATE):
        if not clue.a.is_seeded_by_system and clue.a.line and clue.b is not None:
            why = f"{clue.a.name} is seeded at line {clue.a.line} with another value in each run"
            return [Suspect("unknown", clue.a.file, clue.a.line, (why,), 7.0)]
    return []


def make_first_difference_suspect(situation: Situation) -> Suspect:
    event = situation.difference.event
    file, line = (event.file, event.line) if event is not None else ("", 0)
    why = {
        "inputs": "the inputs differ although no operator before gave another result: they come from outside torch",
        "scalars": "a number given to the operator differs",
        "leaf": "parameters differ although no operator did: something writes to them behind torch",
        "final": "a model differs at the end although no operator did: something writes to it behind torch",
    }.get(situation.difference.what, "nothing that was watched explains it")
    return Suspect("unknown", file, line, (why, NOT_WATCHED), 9.0)


UNKNOWN = Cause(
    "unknown",
    find_unknown_suspects,
    "look at where the values on this line come from",
    "The runs differ and samerun could not tell why. The line is where the difference first shows.",
)

"""Threads of the program write to the same tensor as they come."""

from __future__ import annotations

from samerun.check.causes.cause import Cause
from samerun.check.situation import Situation, Suspect
from samerun.record import format as f
from samerun.record import pins
from samerun.record.run import events_of


def find(situation: Situation) -> list[Suspect]:
    difference = situation.difference
    event = difference.a
    if event is None or situation.variation != "rerun":
        return []
    trace = situation.a.traces.traces.get(difference.role)
    if trace is None or difference.what not in ("inputs", "outputs", "operator", "leaf", "final", "mark"):
        return []
    # The operators, in any thread, whose input another thread had written.
    raced = [
        e for e in events_of(trace, (f.OPERATOR,), event.index + 1)
        if e.flags & f.FOREIGN_WRITE and is_write(e.name)
    ][-1:]  # fmt: skip
    if not raced:
        later = [e for e in events_of(trace, (f.OPERATOR,)) if e.flags & f.FOREIGN_WRITE and is_write(e.name)]
        raced = later[:1]
    if not raced or not (
        event.flags & f.FOREIGN_WRITE or event.thread != 0 or difference.what in ("leaf", "final", "mark")
    ):
        return []
    write = raced[0]
    short = write.name.removeprefix("aten.").split(".")[0]
    return [
        Suspect("thread-race", write.file, write.line,
                (f"{short} at line {write.line} writes a tensor that another thread has written",
                 "the order in which threads come is not fixed"), 0.8, (pins.SERIAL,))
    ]  # fmt: skip


def is_write(operator: str) -> bool:
    return operator.split(".")[1:2] != [] and operator.split(".")[1].endswith("_")


CAUSE = Cause(
    "thread-race",
    find,
    "let one thread write, or add up the threads' results in a fixed order",
    "Threads that update a shared tensor without an agreed order (Hogwild) give another result whenever the"
    " operating system schedules them differently.",
)

"""The streams are seeded, but one run drew more often."""

from __future__ import annotations

from samerun.check.causes.cause import Cause
from samerun.check.situation import Situation, Suspect
from samerun.record import format as f
from samerun.record.run import Event, events_of


def find(situation: Situation) -> list[Suspect]:
    difference = situation.difference
    draws = [e for e in difference.extra if e.kind == f.DRAW]
    if difference.what != "operator" or not draws or not difference.a or not difference.b:
        return []
    shorter, here = (
        (situation.a.traces, difference.a) if difference.extra_in == "b" else (situation.b.traces, difference.b)
    )
    trace = shorter.traces.get(difference.role)
    if trace is None or not goes_on_drawing(events_of(trace, (f.DRAW,)), here.index):
        return []
    first = draws[0]
    return [
        Suspect("extra-draw", first.file, first.line,
                (f"one run draws from {first.name} at line {first.line} where the other does not",
                 "every number drawn later is then another one"), 1.4)
    ]  # fmt: skip


def goes_on_drawing(draws: list[Event], after: int) -> bool:
    return any(e.index > after and e.name.startswith("torch") for e in draws)


CAUSE = Cause(
    "extra-draw",
    find,
    "draw these numbers from a generator of their own, or inside samerun.isolate_rng()",
    "Logging, validation and sampling that draw from the training's generator move it on. The training then"
    " depends on how often they run.",
)

"""The streams are seeded, but one run drew more often."""

from __future__ import annotations

from collections import Counter

from samerun.check.causes.cause import Cause
from samerun.check.evidence.situation import Situation, Suspect
from samerun.record import pins
from samerun.record.trace import format as f
from samerun.record.trace.reader import Trace
from samerun.record.trace.run import Event, select_events


def find_extra_draw_suspects(situation: Situation) -> list[Suspect]:
    difference = situation.difference
    draws = [e for e in difference.extra if e.kind == f.DRAW]
    if difference.what != "operator" or not draws or not difference.a or not difference.b:
        return []
    shorter, here = (
        (situation.a.traces, difference.a) if difference.extra_in == "b" else (situation.b.traces, difference.b)
    )
    longer = situation.b.traces if difference.extra_in == "b" else situation.a.traces
    trace, more = shorter.traces.get(difference.role), longer.traces.get(difference.role)
    if trace is None or more is None or not has_later_torch_draw(select_events(trace, (f.DRAW,)), here.index):
        return []
    first = draws[0]
    if count_torch_draws_and_seeds_in_step(more, first.index) == count_torch_draws_and_seeds_in_step(trace, here.index):
        return []
    seed = last_event_if_torch_seed(select_events(more, (f.SEED, f.OPERATOR), first.index))
    places = [(e.file, e.line) for e in draws if e.line] + ([(seed.file, seed.line)] if seed is not None else [])
    held = tuple(dict.fromkeys(f"{pins.EXTRA}@{file}:{line}" for file, line in places))
    if seed is not None:
        why = f"one run seeds {seed.name} at line {seed.line}, and draws at line {first.line}, where the other does not"
        first = seed
    else:
        why = f"one run draws from {first.name} at line {first.line} where the other does not"
    return [
        Suspect("extra-draw", first.file, first.line, (why, "every number drawn later is then another one"), 1.4, held)
    ]


def has_later_torch_draw(draw_events: list[Event], after_index: int) -> bool:
    return any(e.index > after_index and e.name.startswith("torch") for e in draw_events)


def count_torch_draws_and_seeds_in_step(trace: Trace, event_index: int) -> Counter[tuple[object, ...]]:
    """How often is drawn, and seeded, where, in the optimizer step of an event.

    The same in both runs: no draw is extra, they only come in another order (of a set of layers, say).
    """
    step = trace.count_steps_before(event_index)
    made: Counter[tuple[object, ...]] = Counter()
    done = 0
    for event in select_events(trace, (f.DRAW, f.SEED, f.STEP)):
        if event.kind == f.STEP:
            done += 1
        elif done == step and event.name.startswith("torch"):
            made[event.kind, event.name, event.text if event.kind == f.DRAW else "", event.file, event.line] += 1
    return made


def last_event_if_torch_seed(events: list[Event]) -> Event | None:
    """A seeding right before the draw, with no operator in between."""
    last = events[-1] if events else None
    return last if last is not None and last.kind == f.SEED and last.name == "torch" and last.line else None


EXTRA_DRAW = Cause(
    "extra-draw",
    find_extra_draw_suspects,
    "draw these numbers from a generator of their own, or inside samerun.isolate_rng()",
    "Logging, validation and sampling that draw from the training's generator move it on. The training then"
    " depends on how often they run.",
)

"""The cause behind a variable of the user's own: what it changes, where that can be told."""

from __future__ import annotations

import json
from pathlib import Path

from samerun.check.evidence.situation import Situation, Suspect
from samerun.record import pins
from samerun.record.trace import format as f
from samerun.record.trace.run import Event, select_events


def batch_size(situation: Situation, kept: tuple[Path, Path] | None) -> Suspect | None:
    """The first operator that differs computes another number of rows."""
    event = situation.difference.a
    if kept is None or event is None or event.kind != f.OPERATOR:
        return None
    shapes = [first_shape(path) for path in kept]
    one, other = shapes
    if not one or not other or len(one) != len(other) or one[0] == other[0] or one[1:] != other[1:]:
        return None
    short = event.name.removeprefix("aten.").split(".")[0]
    why = f"{short} at line {event.line} computes {one[0]} rows at once in one run, {other[0]} in the other"
    return Suspect("batch-size", event.file, event.line, (why,), 0.0, certain=True)


def compiled_draws(situation: Situation) -> Suspect | None:
    """Only one run compiles something, and torch's generator then goes through other states."""
    traces = [run.traces.traces.get(situation.difference.role) for run in (situation.a, situation.b)]
    if None in traces:
        return None
    events = [select_events(trace, (f.FACT, f.DRAW)) for trace in traces if trace is not None]
    places, draws = zip(*(taken_apart(found) for found in events), strict=True)
    only = [place for place in (*places[0], *places[1]) if (place in places[0]) != (place in places[1])]
    if not only or draws[0] == draws[1]:
        return None
    file, line = only[0]
    why = (
        f"only one run compiles what is named at line {line}",
        "the compiled code draws another number of times, or in another order",
    )
    return Suspect("extra-draw", file, line, why, 0.0, (pins.EAGER,))


def taken_apart(events: list[Event]) -> tuple[list[tuple[str, int]], list[bytes]]:
    """Where something is compiled, and the states of torch's generator at its draws."""
    places = [(e.file, e.line) for e in events if e.kind == f.FACT and e.name == "torch.compile"]
    return places, [e.outputs for e in events if e.kind == f.DRAW and e.name.startswith("torch")]


def first_shape(path: Path) -> list[int]:
    """The shape of the first tensor that was kept; empty where there is none."""
    try:
        with open(path, "rb") as file:
            tensors = json.loads(file.readline())["tensors"]
    except (OSError, ValueError, KeyError):
        return []
    return [int(n) for n in tensors[0]["shape"]] if tensors else []

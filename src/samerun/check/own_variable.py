"""The cause behind a variable of the user's own: what it changes, where that can be told."""

from __future__ import annotations

import json
from pathlib import Path

from samerun.check.situation import Situation, Suspect
from samerun.record import format as f


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


def first_shape(path: Path) -> list[int]:
    """The shape of the first tensor that was kept; empty where there is none."""
    try:
        with open(path, "rb") as file:
            tensors = json.loads(file.readline())["tensors"]
    except (OSError, ValueError, KeyError):
        return []
    return [int(n) for n in tensors[0]["shape"]] if tensors else []

"""A source that none of the user's lines was seen to read: a program that the user's starts may read it.

Where all sources are pinned and the difference is gone, one of them makes it. Each is then pinned alone, and the line
is the one from which on a variable differs that results depend on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from samerun.check.attribution.confirmation import confirm_by_experiment
from samerun.check.attribution.value_measurement import AttributionSearch
from samerun.check.evidence.situation import Situation, Suspect
from samerun.record import pins

SOURCES: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    ("unseeded-python", "Python's generators", (pins.PYTHON, pins.PYTHON_GENERATOR)),
    ("unseeded-numpy-generator", "NumPy's generators", (pins.NUMPY_GLOBAL, pins.NUMPY_GENERATOR)),
    ("unseeded-torch", "torch's generators", (pins.TORCH, pins.TORCH_GENERATOR)),
    ("os-entropy", "the system's random bytes", (pins.ENTROPY,)),
    ("time", "the clock", (pins.CLOCK,)),
)
"""Kind, name and pins of what is pinned together."""
ALL_SOURCES = tuple(pin for _, _, names in SOURCES for pin in names)


def find_hidden_source(
    search: AttributionSearch, situation: Situation, listed: Sequence[Suspect] = ()
) -> Suspect | None:
    """The source that makes the difference, confirmed; None if no source alone does.

    Without a line if no line was seen to read it. Else it was tried before, and a difference that comes in few runs did
    not come while it was not held still: the line is the likeliest of those in `listed`, and certain if it is the only
    one.
    """
    for number, (kind, name, pinned) in enumerate(SOURCES, 1):
        goes = f"the difference goes with {name} held still in all processes"
        suspect = Suspect(kind, "", 0, (f"{goes}; no line of this program reads it",), 0, pinned)
        if not confirm_by_experiment(search, situation, situation.a.plan, suspect, f"pinned-hidden-{number}", pinned):
            continue
        readers = [each for each in listed if each.kind == kind and each.line and not {*each.pins}.isdisjoint(pinned)]
        if not readers:
            return suspect
        only_line = len({(each.file, each.line) for each in readers}) == 1
        return replace(readers[0], evidence=(*readers[0].evidence, goes), certain=only_line)
    return None

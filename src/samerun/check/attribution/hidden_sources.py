"""A source that none of the user's lines was seen to read: a program that the user's starts may read it.

Where all sources are pinned and the difference is gone, one of them makes it. Each is then pinned alone, and the line
is the one from which on a variable differs that results depend on.
"""

from __future__ import annotations

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


def find_hidden_source(search: AttributionSearch, situation: Situation) -> Suspect | None:
    """The source that makes the difference, confirmed, without a line; None if no source alone does."""
    for number, (kind, name, pinned) in enumerate(SOURCES, 1):
        why = (f"the difference goes with {name} held still in all processes; no line of this program reads it",)
        suspect = Suspect(kind, "", 0, why, 0, pinned)
        if confirm_by_experiment(search, situation, situation.a.plan, suspect, f"pinned-hidden-{number}", pinned):
            return suspect
    return None

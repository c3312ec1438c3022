"""NumPy's global generator, never seeded."""

from __future__ import annotations

from samerun.check.causes.cause import Cause
from samerun.check.evidence.situation import Situation, Suspect, nearness
from samerun.check.evidence.source import Edit, Source
from samerun.record import pins
from samerun.record.trace import format as f

TAKEN = "check_random_state"
"""The function through which libraries take the global generator itself."""


def find(situation: Situation) -> list[Suspect]:
    for clue in situation.clues_of(f.DRAW, f.SEED):
        if clue.a.name != "numpy" or not clue.a.line:
            continue
        if clue.kind == f.SEED and not clue.a.unseeded:
            continue
        if clue.kind == f.DRAW and situation.is_seeded("numpy", clue.role, clue.a.index):
            continue
        why = (
            f"numpy.random.{clue.a.text}() at line {clue.a.line} drew from a generator in another state"
            if clue.kind == f.DRAW and clue.a.text != TAKEN
            else f"a library called at line {clue.a.line} draws from NumPy's generator, which is in another state"
            if clue.kind == f.DRAW
            else f"numpy.random.seed() at line {clue.a.line} was called without a seed"
        )
        return [
            Suspect("unseeded-numpy-global", clue.a.file, clue.a.line,
                    (why, "no numpy.random.seed(...) came before it"),
                    2 + nearness(situation, clue) + (0 if clue.a.direct else 2), (pins.NUMPY_GLOBAL,))
        ]  # fmt: skip
    return []


def patch(source: Source) -> list[Edit]:
    """Pass 0 to a call of `seed` without one; else seed NumPy behind the imports."""
    empty = [call for call in source.calls("seed") if not call.args and not call.keywords]
    if empty:
        return [edit for call in empty for edit in source.seed_call(call)]
    name = source.imported_as("numpy")
    return [source.after_imports(f"{name}.random.seed(0)")] if name else []


CAUSE = Cause(
    "unseeded-numpy-global",
    find,
    "call numpy.random.seed(SEED) before the first draw (samerun.seed_everything(SEED) seeds every source)",
    "NumPy's global generator (`numpy.random.rand` and its like) starts from the operating system's entropy."
    " Seeding torch does not seed it.",
    patch,
)

"""Python's `random`, never seeded."""

from __future__ import annotations

from samerun.check.causes.cause import Cause
from samerun.check.evidence.situation import Situation, Suspect, nearness
from samerun.check.evidence.source import Edit, Source
from samerun.record import pins
from samerun.record.trace import format as f


def find(situation: Situation) -> list[Suspect]:
    found = []
    for clue in situation.clues_of(f.DRAW, f.SEED):
        if clue.a.name != "python" or not clue.a.direct:
            continue
        if clue.kind == f.SEED and not clue.a.unseeded:
            continue
        if clue.kind == f.DRAW and situation.is_seeded("python", clue.role, clue.a.index):
            continue
        why = (
            f"random.{clue.a.text}() at line {clue.a.line} drew from a generator in another state"
            if clue.kind == f.DRAW
            else f"random.seed() at line {clue.a.line} was called without a seed"
        )
        found.append(
            Suspect("unseeded-python", clue.a.file, clue.a.line, (why, "no random.seed(...) came before it"),
                    2 + nearness(situation, clue), (pins.PYTHON,))
        )  # fmt: skip
        break
    for clue in situation.clues_of(f.CREATE):
        if clue.a.name == "python.Random" and clue.a.unseeded and clue.a.direct:
            found.append(
                Suspect("unseeded-python", clue.a.file, clue.a.line,
                        (f"random.Random() at line {clue.a.line} was made without a seed",),
                        3 + nearness(situation, clue), (pins.PYTHON_GENERATOR,))
            )  # fmt: skip
    return found


def patch(source: Source) -> list[Edit]:
    """Pass 0 to a generator or a call of `seed` without one; else seed the module behind the imports."""
    empty = [call for call in source.calls("Random", "seed") if not call.args and not call.keywords]
    if empty:
        return [edit for call in empty for edit in source.seed_call(call)]
    name = source.imported_as("random")
    return [source.after_imports(f"{name}.seed(0)")] if name else []


CAUSE = Cause(
    "unseeded-python",
    find,
    "call random.seed(SEED) before the first draw (samerun.seed_everything(SEED) seeds every source)",
    "Python's random module starts from the operating system's entropy. A program that seeds torch and NumPy"
    " but not `random` shuffles, splits or augments differently in every run.",
    patch,
)

"""A NumPy `Generator` or `RandomState` of the program's own, made without a seed."""

from __future__ import annotations

from samerun.check.causes.cause import Cause
from samerun.check.evidence.situation import Situation, Suspect, nearness
from samerun.check.evidence.source import Edit, Source
from samerun.record import pins
from samerun.record.trace import format as f


def find(situation: Situation) -> list[Suspect]:
    found = []
    clues = situation.clues_of(f.CREATE)
    owned = {(c.role, c.a.index - 1) for c in clues if c.a.text == "owner"}
    for clue in clues:
        if clue.a.text == "owner":
            continue
        later = 1 if (clue.role, clue.a.index) in owned else 0  # its owner's caller is the likelier place
        if clue.a.name == "numpy.Generator" and clue.a.unseeded and clue.a.direct:
            found.append(
                Suspect("unseeded-numpy-generator", clue.a.file, clue.a.line,
                        (f"a NumPy generator was made without a seed at line {clue.a.line}",
                         "numpy.random.seed() does not reach generators of this kind"),
                        1.5 + nearness(situation, clue) + later, (pins.NUMPY_GENERATOR,))
            )  # fmt: skip
    return found


MAKERS = ("default_rng", "RandomState", "SeedSequence", "PCG64", "PCG64DXSM", "MT19937", "Philox", "SFC64")


def patch(source: Source) -> list[Edit]:
    """Pass 0 where the generator is made."""
    empty = [call for call in source.calls(*MAKERS) if not call.args and not call.keywords]
    return [edit for call in empty for edit in source.seed_call(call)]


CAUSE = Cause(
    "unseeded-numpy-generator",
    find,
    "pass a seed where the generator is made: numpy.random.default_rng(SEED)",
    "`numpy.random.default_rng()`, `RandomState()` and bit generators without a seed take one from the"
    " operating system, and `numpy.random.seed` has no effect on them. Classes that own a generator"
    " (augmentations, environments) need a seed argument.",
    patch,
)

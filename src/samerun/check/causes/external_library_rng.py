"""A generator that belongs to an installed library, made without a seed."""

from __future__ import annotations

from samerun.check.causes.cause import Cause
from samerun.check.evidence.situation import Situation, Suspect, nearness
from samerun.record import pins
from samerun.record.trace import format as f


def find(situation: Situation) -> list[Suspect]:
    found = []
    for clue in situation.clues_of(f.CREATE):
        if clue.a.unseeded and clue.a.text == "owner":
            here = (c.source_location for c in situation.clues if (c.role, c.a.index) == (clue.role, clue.a.index - 1))
            file, line = next(here, clue.source_location)
            found.append(
                Suspect("external-library-rng", clue.a.file, clue.a.line,
                        (f"the object used at line {clue.a.line} makes a generator of its own without a seed",
                         "it takes a seed, and was not given one"),
                        1.2 + nearness(situation, clue), (f"{pins.NUMPY_GENERATOR}@{file}:{line}",))
            )  # fmt: skip
        elif clue.a.unseeded and not clue.a.direct and clue.a.line:
            pin = pins.PYTHON_GENERATOR if clue.a.name.startswith("python") else pins.NUMPY_GENERATOR
            found.append(
                Suspect("external-library-rng", clue.a.file, clue.a.line,
                        (f"a library called at line {clue.a.line} made a {clue.a.name} without a seed",),
                        6 + nearness(situation, clue), (pin,))
            )  # fmt: skip
    return found


CAUSE = Cause(
    "external-library-rng",
    find,
    "give the library its own seed at this call; global seeds do not reach its generator",
    "Libraries that keep a generator of their own (augmentation libraries, environments, samplers) are not"
    " reached by random.seed, numpy.random.seed or torch.manual_seed.",
)

"""Randomness read from the operating system on purpose or by accident."""

from __future__ import annotations

from samerun.check.causes.cause import Cause
from samerun.check.evidence.situation import Situation, Suspect, nearness, same_line
from samerun.check.evidence.source import Edit, Source, fixed_seed
from samerun.record import pins
from samerun.record.trace import format as f


def find(situation: Situation) -> list[Suspect]:
    found = []
    for clue in situation.clues_of(f.SEED):
        if clue.a.name == "torch" and clue.a.unseeded:
            found.append(
                Suspect("os-entropy", clue.a.file, clue.a.line,
                        (f"torch.seed() at line {clue.a.line} takes a seed from the operating system",),
                        1.1 + nearness(situation, clue), (pins.TORCH,))
            )  # fmt: skip
        elif not clue.a.unseeded:
            source = same_line(situation, clue, (f.ENTROPY,))
            if source is not None and source.a.line == clue.a.line:
                found.append(
                    Suspect("os-entropy", clue.a.file, clue.a.line,
                            (f"{clue.a.name} is seeded with {source.a.name}() at line {clue.a.line}",),
                            1.0, (pins.ENTROPY,))
                )  # fmt: skip
    for clue in situation.clues_of(f.FACT):
        if clue.a.name in ("os.getpid", "os.getppid"):
            found.append(
                Suspect("os-entropy", clue.a.file, clue.a.line,
                        (f"{clue.a.name}() at line {clue.a.line} is another number in every run",),
                        2.8 + nearness(situation, clue), (pins.ENTROPY,))
            )  # fmt: skip
    for clue in situation.clues_of(f.ENTROPY):
        if clue.a.direct:
            found.append(
                Suspect("os-entropy", clue.a.file, clue.a.line,
                        (f"{clue.a.name}() at line {clue.a.line} gave another value",),
                        3 + nearness(situation, clue), (pins.ENTROPY,))
            )  # fmt: skip
    return found


def patch(source: Source) -> list[Edit]:
    """0 in place of a seed that is made of the system's entropy."""
    return fixed_seed(source)


CAUSE = Cause(
    "os-entropy",
    find,
    "derive the value from the run's seed instead of the operating system's entropy",
    "os.urandom, uuid4, secrets, random.SystemRandom and torch.seed() cannot be seeded; process numbers and"
    " temporary names are other ones in every run. A value that reaches"
    " the training from there differs in every run. Native code that asks the system past Python (a tokenizer's"
    " dropout, say) is found on Linux: a preloaded library counts and holds what it draws.",
    patch,
)

"""`hash(str)` decides an order or a seed."""

from __future__ import annotations

from samerun.check.causes.cause import Cause
from samerun.check.situation import Situation, Suspect
from samerun.record import format as f


def find(situation: Situation) -> list[Suspect]:
    if situation.variation != "hash_seed":
        return []
    for clue in situation.clues_of(f.SEED, f.CREATE):
        if not clue.a.unseeded and clue.a.line:
            return [
                Suspect("hash-order", clue.a.file, clue.a.line,
                        (f"{clue.a.name} is seeded at line {clue.a.line} with a value that depends on PYTHONHASHSEED",),
                        0.0, certain=True)
            ]  # fmt: skip
    return []


CAUSE = Cause(
    "hash-order",
    find,
    "iterate over sorted(...) of the set; make seeds without hash() (zlib.crc32 or hashlib give fixed numbers)",
    "Python gives hash(str) another seed in every process, and sets are ordered by hash. Class ids, vocabularies"
    " and parameter orders taken from a set therefore change from run to run. PYTHONHASHSEED must be set before"
    " the interpreter starts; setting it inside the program comes too late.",
)

"""A `torch.Generator` of the program's own that took its seed from the system."""

from __future__ import annotations

from samerun.check.causes.cause import Cause
from samerun.check.evidence.situation import Situation, Suspect, nearness
from samerun.check.evidence.source import Edit, Source, span
from samerun.record import pins
from samerun.record.trace import format as f


def find(situation: Situation) -> list[Suspect]:
    return [
        Suspect("unseeded-torch-generator", clue.a.file, clue.a.line,
                (f"Generator.seed() at line {clue.a.line} took a seed from the operating system",),
                1.2 + nearness(situation, clue), (pins.TORCH_GENERATOR,))
        for clue in situation.clues_of(f.SEED) if clue.a.name == "torch.Generator" and clue.a.unseeded
    ]  # fmt: skip


def patch(source: Source) -> list[Edit]:
    """`generator.seed()` becomes `generator.manual_seed(0)`."""
    edits = []
    for call in source.calls("seed"):
        if not call.args and not call.keywords:
            line, column = span(call)[1]
            edits.append(Edit((line, column - len("seed()")), (line, column), "manual_seed(0)"))
    return edits


CAUSE = Cause(
    "unseeded-torch-generator",
    find,
    "use generator.manual_seed(SEED) instead of generator.seed()",
    "`torch.Generator().seed()` draws a seed from the operating system. (A generator that is never seeded"
    " always starts from the same number, which torch.manual_seed does not change.)",
    patch,
)

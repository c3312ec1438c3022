"""Torch's global generator, never seeded."""

from __future__ import annotations

from samerun.check.causes.cause import Cause
from samerun.check.evidence.situation import Situation, Suspect
from samerun.check.evidence.source import Edit, Source
from samerun.record import pins
from samerun.record.trace import format as f


def find(situation: Situation) -> list[Suspect]:
    event = situation.difference.a
    if situation.difference.what != "draw" or event is None or event.name == "torch.Generator":
        return []
    b = situation.difference.b
    if b is None or event.inputs == b.inputs:
        return []
    if any(e.kind == f.SEED and e.name == "torch" for e in situation.host_events):
        return []
    line = f"{event.text.split('.')[1] if '.' in event.text else event.text} at line {event.line}"
    return [
        Suspect("unseeded-torch", event.file, event.line,
                (f"torch's generator started from another seed in each run ({line} drew first)",
                 "no torch.manual_seed(...) came before it"), 1.0, (pins.TORCH,))
    ]  # fmt: skip


def patch(source: Source) -> list[Edit]:
    """Seed torch behind the imports."""
    name = source.imported_as("torch")
    return [source.after_imports(f"{name}.manual_seed(0)")] if name else []


CAUSE = Cause(
    "unseeded-torch",
    find,
    "call torch.manual_seed(SEED) before this line (samerun.seed_everything(SEED) seeds every source)",
    "Torch's global generator takes its first seed from the operating system. Everything drawn before"
    " torch.manual_seed differs from run to run: weights, dropout, shuffling.",
    patch,
)

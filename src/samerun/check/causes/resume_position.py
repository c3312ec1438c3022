"""Something other than a random generator that a checkpoint lacks: the place in the epoch, the scheduler, ..."""

from __future__ import annotations

from samerun.check import resumption
from samerun.check.causes.cause import Cause
from samerun.check.situation import Situation, Suspect

SHOWN = {
    "params": "the parameters", "grads": "the gradients", "buffers": "the buffers",
    "optimizer": "the optimizer's state or learning rate", "loss": "the loss", "batch": "the batch",
    "rng": "torch's generators", "rng.numpy": "NumPy's generator", "rng.python": "Python's generator",
}  # fmt: skip


def find(situation: Situation) -> list[Suspect]:
    if situation.variation != "resume":
        return []
    file, line = situation.saving_line()
    found = resumption.parting(situation.a.traces, situation.b.traces)
    if found is None:
        why: tuple[str, ...] = ("every step is the same, and what the models hold in the end is not",)
        return [Suspect("resume-position", file, line, why, 2.0)]
    differing = [SHOWN.get(n, n) for n in found.differing() if n not in resumption.RNG_LEAVES or n in found.lost]
    equal = [SHOWN.get(n, n) for n in found.equal() if n not in resumption.RNG_LEAVES]
    place = "the first one behind the interruption" if found.first else "not the first one behind the interruption"
    why = (f"step {found.step}, {place}: {listed(differing)} differ{'s' if len(differing) == 1 else ''}",)
    if equal:
        why += (f"the same there: {listed(equal)}",)
    guess = missing(found.differing())
    return [Suspect("resume-position", file, line, (*why, guess) if guess else why, 2.0)]


def missing(differing: list[str]) -> str:
    """What the checkpoint seems to lack."""
    if "loss" not in differing and "grads" not in differing:
        return "the gradients are the same, the update is not: the optimizer's or the scheduler's state was not saved"
    if "batch" in differing:
        return "another batch came: the place in the epoch was not saved"
    return ""


def listed(names: list[str]) -> str:
    return " and ".join(filter(None, [", ".join(names[:-1]), names[-1]]))


CAUSE = Cause(
    "resume-position",
    find,
    "save the place in the epoch, the scheduler and the scaler too: samerun.checkpoint.save(path, model=...,"
    " optimizer=..., scheduler=..., loader=...)",
    "A checkpoint with the model and the optimizer alone begins the epoch again, or goes on with another learning"
    " rate. What a training holds is more: how far the data loader is, the scheduler, the gradient scaler, moving"
    " averages, counters that decide what is done when.",
)

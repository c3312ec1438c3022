"""Something other than a random generator that a checkpoint lacks: the place in the epoch, the scheduler, ..."""

from __future__ import annotations

from samerun.check.causes.cause import Cause
from samerun.check.evidence.line_search import loop_over
from samerun.check.evidence.resumption import RNG_LEAVES, Parting
from samerun.check.evidence.situation import Situation, Suspect
from samerun.record.trace import format as f
from samerun.record.trace.run import Event
from samerun.record.watching import training_states as states

SHOWN = {
    "params": "the parameters", "grads": "the gradients", "buffers": "the buffers",
    "optimizer": "the optimizer's state or learning rate", "loss": "the loss", "batch": "the batch",
    "rng": "torch's generators", "rng.numpy": "NumPy's generator", "rng.python": "Python's generator",
}  # fmt: skip
KIND = "resume-position"


def find(situation: Situation) -> list[Suspect]:
    parting = situation.parting
    if parting is None:
        return []
    file, line = situation.checkpoint_line()
    if parting.step is None:
        return [Suspect(KIND, file, line, (of_the_end(parting),), 3.0)]
    where = "the first one behind the interruption" if parting.first else "not the first one behind the interruption"
    differing = [n for n in parting.differing() if n not in RNG_LEAVES or n in parting.lost]
    equal = [SHOWN.get(name, name) for name in parting.equal() if name not in RNG_LEAVES]
    shown = listed([SHOWN.get(name, name) for name in differing])
    why: tuple[str, ...] = (f"step {parting.step.number}, {where}: {shown} differ{'s' if len(differing) == 1 else ''}",)
    if equal:
        why += (f"the same there: {listed(equal)}",)
    if "loss" not in differing and "grads" not in differing:
        return of_update(parting, file, line, why)
    return [*of_data(parting, why), Suspect(KIND, file, line, why, 3.0)]


def of_the_end(parting: Parting) -> str:
    if parting.difference.what == "final":
        return "every step is the same, and what the models hold in the end is not"
    behind = parting.difference.step - parting.shift
    more = "fewer" if parting.difference.extra_in == "a" else "more"
    return f"{behind} steps lie behind the interruption, and the resumed run makes {more}"


def of_update(parting: Parting, file: str, line: int, why: tuple[str, ...]) -> list[Suspect]:
    """The same gradients, another update: what the optimizer remembers, or its learning rate, is another one."""
    event = parting.difference.a
    rate = event is not None and parting.difference.what == "scalars"
    told = f"{short(event)} at line {event.line} uses another number; " if event is not None and rate else ""
    why += (f"{told}the gradients are the same, the update is not",)
    parts = (states.SCHEDULER, states.OPTIMIZER) if rate else (states.OPTIMIZER, states.SCHEDULER)
    return [Suspect(KIND, file, line, why, 0.8 + rank / 10, parts=(part,)) for rank, part in enumerate(parts)]


def of_data(parting: Parting, why: tuple[str, ...]) -> list[Suspect]:
    """Other data: the loop that takes them, and the experiment that gives the resumed run those of the other."""
    assert parting.step is not None and parting.its is not None
    # The resumed run may pass over batches that it has had, so they are laid end to end.
    batches = list(zip(reversed(parting.step.events(f.BATCH)), reversed(parting.its.events(f.BATCH)), strict=False))
    other = [one for one, its in reversed(batches) if one.outputs != its.outputs and one.line]
    event = parting.difference.a
    if event is not None and (event.kind == f.DRAW or event.flags & f.NO_INPUTS):
        event = first_use(parting)  # an order that was drawn: where it is used
    if other:
        first = other[0]
        line = loop_over(first.file, first.line)
        told = f"another batch comes at line {first.line}: the place in the data is another one"
        return [Suspect(KIND, first.file, line, (*why, told), 2.0, replay=True)]
    if event is None or event.kind != f.OPERATOR or not event.line or event.phase == "optimizer":
        return []
    line = loop_over(event.file, event.line)
    told = f"the data that {short(event)} gets at line {event.line} are other ones"
    return [Suspect(KIND, event.file, line, (*why, told), 2.0, replay=(event.file, event.line, event.name))]


def first_use(parting: Parting) -> Event | None:
    """The first operator of the step that both runs have and that gets other inputs."""
    assert parting.step is not None and parting.its is not None
    # The resumed run's first step begins where its program begins, so the two are laid end to end.
    pairs = zip(reversed(parting.step.events(f.OPERATOR)), reversed(parting.its.events(f.OPERATOR)), strict=False)
    found = None
    for one, its in pairs:
        if (one.thread, one.name, one.file, one.line) != (its.thread, its.name, its.file, its.line):
            break
        if one.thread == 0 and one.inputs != its.inputs:
            found = one
    return found


def short(event: Event) -> str:
    return event.name.removeprefix("aten.").split(".")[0]


def listed(names: list[str]) -> str:
    return " and ".join(filter(None, [", ".join(names[:-1]), names[-1]]))


CAUSE = Cause(
    KIND,
    find,
    "save the place in the epoch, the scheduler and the scaler too: samerun.checkpoint.save(path, model=...,"
    " optimizer=..., scheduler=..., loader=...)",
    "A checkpoint with the model and the optimizer alone begins the epoch again, or goes on with another learning"
    " rate. What a training holds is more: how far the data loader is, the scheduler, the gradient scaler, moving"
    " averages, counters that decide what is done when.",
)

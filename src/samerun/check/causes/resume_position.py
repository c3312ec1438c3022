"""Something other than a random generator that a checkpoint lacks: the place in the epoch, the scheduler, ..."""

from __future__ import annotations

from samerun.check.causes.cause import Cause
from samerun.check.evidence.line_search import data_loop_line
from samerun.check.evidence.resumption import RNG_LEAVES, ResumeDifference
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
    comparison = situation.resume_difference
    if comparison is None:
        return []
    file, line = situation.checkpoint_line()
    if comparison.step is None:
        return [Suspect(KIND, file, line, (difference_at_end(comparison),), 3.0)]
    where = ("" if comparison.is_first_step else "not ") + "the first one behind the interruption"
    lost = comparison.lost_generators
    differing = [n for n in comparison.differing() if n not in RNG_LEAVES or n in lost]
    equal = [SHOWN.get(name, name) for name in comparison.equal() if name not in RNG_LEAVES]
    shown = join_words([SHOWN.get(name, name) for name in differing])
    verb = "differs" if len(differing) == 1 else "differ"
    why: tuple[str, ...] = (f"step {comparison.step.number}, {where}: {shown} {verb}",)
    if equal:
        why += (f"the same there: {join_words(equal)}",)
    if "loss" not in differing and "grads" not in differing:
        return suspects_of_update(comparison, file, line, why)
    return [*suspects_of_data(comparison, why), Suspect(KIND, file, line, why, 3.0)]


def difference_at_end(comparison: ResumeDifference) -> str:
    if comparison.difference.what == "final":
        return "every step is the same, and what the models hold in the end is not"
    behind = comparison.difference.step - comparison.shift
    more = "fewer" if comparison.difference.extra_in == "a" else "more"
    return f"{behind} steps lie behind the interruption, and the resumed run makes {more}"


def suspects_of_update(comparison: ResumeDifference, file: str, line: int, why: tuple[str, ...]) -> list[Suspect]:
    """The same gradients, another update: what the optimizer remembers, or its learning rate, is another one."""
    event = comparison.difference.a
    rate = event is not None and comparison.difference.what == "scalars"
    told = f"{operator_name(event)} at line {event.line} uses another number; " if event is not None and rate else ""
    why += (f"{told}the gradients are the same, the update is not",)
    parts = (states.SCHEDULER, states.OPTIMIZER) if rate else (states.OPTIMIZER, states.SCHEDULER)
    return [Suspect(KIND, file, line, why, 0.8 + rank / 10, parts=(part,)) for rank, part in enumerate(parts)]


def suspects_of_data(comparison: ResumeDifference, why: tuple[str, ...]) -> list[Suspect]:
    """Other data: the loop that takes them, and the experiment that gives the resumed run those of the other."""
    assert comparison.step is not None and comparison.resumed_step is not None
    # The resumed run may pass over batches that it has had, so they are laid end to end.
    batches = list(
        zip(reversed(comparison.step.events(f.BATCH)), reversed(comparison.resumed_step.events(f.BATCH)), strict=False)
    )
    other = [one for one, its in reversed(batches) if one.outputs != its.outputs and one.line]
    event = comparison.difference.a
    if event is not None and (event.kind == f.DRAW or event.flags & f.NO_INPUTS):
        event = first_operator_with_other_inputs(comparison)  # an order that was drawn: where it is used
    if other:
        first = other[0]
        line = data_loop_line(first.file, first.line)
        told = f"another batch comes at line {first.line}: the place in the data is another one"
        return [Suspect(KIND, first.file, line, (*why, told), 2.0, replay=True)]
    if event is None or event.kind != f.OPERATOR or not event.line or event.phase == "optimizer":
        return []
    line = data_loop_line(event.file, event.line)
    told = f"the data that {operator_name(event)} gets at line {event.line} are other ones"
    return [Suspect(KIND, event.file, line, (*why, told), 2.0, replay=(event.file, event.line, event.name))]


def first_operator_with_other_inputs(comparison: ResumeDifference) -> Event | None:
    """The first operator of the step that both runs have and that gets other inputs."""
    assert comparison.step is not None and comparison.resumed_step is not None
    # The resumed run's first step begins where its program begins, so the two are laid end to end.
    pairs = zip(
        reversed(comparison.step.events(f.OPERATOR)), reversed(comparison.resumed_step.events(f.OPERATOR)), strict=False
    )
    found = None
    for one, its in pairs:
        if (one.thread, one.name, one.file, one.line) != (its.thread, its.name, its.file, its.line):
            break
        if one.thread == 0 and one.inputs != its.inputs:
            found = one
    return found


def operator_name(event: Event) -> str:
    return event.name.removeprefix("aten.").split(".")[0]


def join_words(names: list[str]) -> str:
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

"""What a checkpoint lacks: the state of a random generator, the position in the data, the scheduler."""

from __future__ import annotations

from samerun.check.causes.cause import Cause
from samerun.check.evidence.line_search import data_loop_line_or_same_line
from samerun.check.evidence.resumption import GLOBAL, RNG_LEAVES, ResumeDifference
from samerun.check.evidence.situation import Situation, Suspect
from samerun.record.trace import format as f
from samerun.record.trace.run import Event, RunTraces, select_events
from samerun.record.watching import training_states as states

# A random generator that goes on elsewhere after resuming.
GENERATOR_OF_LEAF = {"rng": states.TORCH, "rng.numpy": states.NUMPY, "rng.python": states.PYTHON}
GENERATOR_OWNERS = {states.TORCH: "torch's", states.NUMPY: "NumPy's", states.PYTHON: "Python's"}


def find_resume_rng_suspects(situation: Situation) -> list[Suspect]:
    comparison = situation.resume_difference
    if comparison is None or comparison.step is None:
        return []
    private = find_lost_private_generator_suspect(situation, comparison)
    return [*([private] if private else []), *find_lost_global_generator_suspects(situation, comparison)]


def find_lost_private_generator_suspect(situation: Situation, comparison: ResumeDifference) -> Suspect | None:
    """A generator that the program made: the line that made it, or gave it its seed."""
    drawn, draw = comparison.difference.what == "draw", comparison.difference.a
    if not drawn or draw is None or draw.name in GLOBAL:
        drawn, draw = False, comparison.lost_own_draw
    if draw is None:
        return None
    trace = situation.a.traces.traces[comparison.difference.role]
    made = [
        e
        for e in select_events(trace, (f.SEED, f.CREATE), draw.index)
        if e.line and _makes_or_seeds_drawn_generator(e, draw)
    ]
    seeded = [e for e in made if e.kind == f.SEED] or made
    if not seeded:
        return None
    line = seeded[-1].line
    why = f"{draw.text or draw.name} at line {draw.line} draws from a generator in another state"
    more = f"the generator made at line {line} begins again after the resume: the checkpoint lacks its state"
    return Suspect("resume-rng", seeded[-1].file, line, (why, more), 0.5 if drawn else 0.6, parts=(states.OWN,))


def _makes_or_seeds_drawn_generator(event: Event, draw: Event) -> bool:
    """Does an event make or seed the kind of generator that is drawn from? A draw of torch's knows its seed."""
    kinds = {draw.name, "python.Random"} if draw.name.startswith("python") else {draw.name}
    seeded_otherwise = draw.name == "torch.Generator" and event.kind == f.SEED and event.inputs != draw.inputs
    return event.name in kinds and not seeded_otherwise


def find_lost_global_generator_suspects(situation: Situation, comparison: ResumeDifference) -> list[Suspect]:
    """Those that stand elsewhere after the first step, and torch's where the first thing that differs is its draw."""
    draw = comparison.difference.a if comparison.difference.what == "draw" else None
    found = {GENERATOR_OF_LEAF[leaf] for leaf in comparison.lost_generators} | (
        {states.TORCH} if draw and draw.name in GLOBAL else set()
    )
    if not found:
        return []
    parts = tuple(part for part in states.PARTS if part in found)
    why: tuple[str, ...] = ()
    if draw is not None:
        why = (f"{draw.text or draw.name} at line {draw.line} draws from a generator in another state",)
    names = " and ".join(GENERATOR_OWNERS[part] for part in parts)
    why += (f"after the first step behind the interruption, {names} generator stands elsewhere",)
    file, line = situation.find_save_or_load_line_or_empty()
    for part in parts:
        early = find_restore_and_draw_before_training(situation.b.traces, comparison, part)
        if early is not None:
            put, between = early
            file, line = put.file, put.line
            why += (
                f"line {line} puts {GENERATOR_OWNERS[part]} generator back,"
                f" and line {between.line} draws from it before the training goes on",
            )
            break
        wrong = find_restored_generator_line(situation, comparison, part)
        if wrong is not None:
            file, line = wrong.file, wrong.line
            why += (f"line {line} puts {GENERATOR_OWNERS[part]} generator back, in a state that it did not have then",)
            break
    return [Suspect("resume-rng", file, line, why, 1.0, parts=parts)]


def find_restored_generator_line(situation: Situation, comparison: ResumeDifference, generator: str) -> Event | None:
    """Where only the resumed run puts a generator back: it stands elsewhere all the same."""
    if comparison.first_steps is None:
        return None
    role, its = comparison.difference.role, comparison.first_steps[1]
    whole, resumed = situation.a.traces.traces[role], situation.b.traces.traces[role]
    theirs = {(e.file, e.line) for e in select_events(whole, (f.SEED,)) if e.name == generator}
    restored = [e for e in select_events(resumed, (f.SEED,), its.end) if e.name == generator and e.line]
    return restored[-1] if restored and (restored[-1].file, restored[-1].line) not in theirs else None


def find_restore_and_draw_before_training(
    resumed: RunTraces, comparison: ResumeDifference, generator: str
) -> tuple[Event, Event] | None:
    """Where a generator is put back after the load, and then drawn from at a line that is none of the training's."""
    if comparison.first_steps is None:
        return None
    ours, its = comparison.first_steps
    training = {(e.file, e.line) for e in ours.select_events(f.DRAW)}
    put = None
    loaded = False
    for event in select_events(resumed.traces[comparison.difference.role], (f.LOAD, f.SEED, f.DRAW), its.end):
        loaded = loaded or event.kind == f.LOAD
        if event.name != generator or not event.line:
            continue
        if event.kind == f.SEED:
            put = event if loaded else None
        elif event.kind == f.DRAW and put is not None and (event.file, event.line) not in training:
            return put, event
    return None


RESUME_RNG = Cause(
    "resume-rng",
    find_resume_rng_suspects,
    "save every random generator and put it back: samerun.checkpoint.save(path, model=..., loader=...) does,"
    " samerun.state_dict() alone too",
    "A checkpoint without the states of the random generators goes on with other numbers: another order of the"
    " data, other dropout masks, other augmentation. Generators of the program's own, such as a DataLoader's"
    " `generator=`, have to be saved one by one.",
)


# Something other than a random generator that a checkpoint lacks: the place in the epoch, the scheduler, ...
LEAF_DESCRIPTIONS = {
    "params": "the parameters", "grads": "the gradients", "buffers": "the buffers",
    "optimizer": "the optimizer's state or learning rate", "loss": "the loss", "batch": "the batch",
    "rng": "torch's generators", "rng.numpy": "NumPy's generator", "rng.python": "Python's generator",
}  # fmt: skip
POSITION_KIND = "resume-position"


def find_resume_position_suspects(situation: Situation) -> list[Suspect]:
    comparison = situation.resume_difference
    if comparison is None:
        return []
    file, line = situation.find_save_or_load_line_or_empty()
    if comparison.step is None:
        return [Suspect(POSITION_KIND, file, line, (describe_difference_at_end(comparison),), 3.0)]
    where = ("" if comparison.is_first_step else "not ") + "the first one behind the interruption"
    lost = comparison.lost_generators
    differing = [n for n in comparison.list_differing_leaves() if n not in RNG_LEAVES or n in lost]
    equal = [LEAF_DESCRIPTIONS.get(name, name) for name in comparison.list_equal_leaves() if name not in RNG_LEAVES]
    shown = join_with_and([LEAF_DESCRIPTIONS.get(name, name) for name in differing])
    verb = "differs" if len(differing) == 1 else "differ"
    why: tuple[str, ...] = (f"step {comparison.step.number}, {where}: {shown} {verb}",)
    if equal:
        why += (f"the same there: {join_with_and(equal)}",)
    if "loss" not in differing and "grads" not in differing:
        return make_optimizer_and_scheduler_suspects(comparison, file, line, why)
    other_data = find_data_position_suspect(comparison, why)
    return [*([other_data] if other_data else []), Suspect(POSITION_KIND, file, line, why, 3.0)]


def describe_difference_at_end(comparison: ResumeDifference) -> str:
    if comparison.difference.what == "final":
        return "every step is the same, and what the models hold in the end is not"
    behind = comparison.difference.step - comparison.shift
    more = "fewer" if comparison.difference.extra_in == "a" else "more"
    return f"{behind} steps lie behind the interruption, and the resumed run makes {more}"


def make_optimizer_and_scheduler_suspects(
    comparison: ResumeDifference, file: str, line: int, evidence: tuple[str, ...]
) -> list[Suspect]:
    """The same gradients, another update: what the optimizer remembers, or its learning rate, is another one."""
    event = comparison.difference.a
    rate = event is not None and comparison.difference.what == "scalars"
    told = (
        f"{short_operator_name(event)} at line {event.line} uses another number; " if event is not None and rate else ""
    )
    evidence += (f"{told}the gradients are the same, the update is not",)
    parts = (states.SCHEDULER, states.OPTIMIZER) if rate else (states.OPTIMIZER, states.SCHEDULER)
    return [
        Suspect(POSITION_KIND, file, line, evidence, 0.8 + rank / 10, parts=(part,)) for rank, part in enumerate(parts)
    ]


def find_data_position_suspect(comparison: ResumeDifference, evidence: tuple[str, ...]) -> Suspect | None:
    """Other data: the loop that takes them, and the experiment that gives the resumed run those of the other."""
    assert comparison.step is not None and comparison.resumed_step is not None
    # The resumed run may pass over batches that it has had, so they are laid end to end.
    batches = list(
        zip(
            reversed(comparison.step.select_events(f.BATCH)),
            reversed(comparison.resumed_step.select_events(f.BATCH)),
            strict=False,
        )
    )
    other = [one for one, its in reversed(batches) if one.outputs != its.outputs and one.line]
    event = comparison.difference.a
    if event is not None and (event.kind == f.DRAW or event.flags & f.NO_INPUTS):
        event = find_first_operator_with_other_inputs(comparison)  # an order that was drawn: where it is used
    if other:
        first = other[0]
        line = data_loop_line_or_same_line(first.file, first.line)
        told = f"another batch comes at line {first.line}: the place in the data is another one"
        return Suspect(POSITION_KIND, first.file, line, (*evidence, told), 2.0, replay=True)
    if event is None or event.kind != f.OPERATOR or not event.line or event.phase == "optimizer":
        return None
    line = data_loop_line_or_same_line(event.file, event.line)
    told = f"the data that {short_operator_name(event)} gets at line {event.line} are other ones"
    return Suspect(POSITION_KIND, event.file, line, (*evidence, told), 2.0, replay=(event.file, event.line, event.name))


def find_first_operator_with_other_inputs(comparison: ResumeDifference) -> Event | None:
    """The first operator of the step that both runs have and that gets other inputs."""
    assert comparison.step is not None and comparison.resumed_step is not None
    # The resumed run's first step begins where its program begins, so the two are laid end to end.
    pairs = zip(
        reversed(comparison.step.select_events(f.OPERATOR)),
        reversed(comparison.resumed_step.select_events(f.OPERATOR)),
        strict=False,
    )
    found = None
    for one, its in pairs:
        if (one.thread, one.name, one.file, one.line) != (its.thread, its.name, its.file, its.line):
            break
        if one.thread == 0 and one.inputs != its.inputs:
            found = one
    return found


def short_operator_name(event: Event) -> str:
    return event.name.removeprefix("aten.").split(".")[0]


def join_with_and(names: list[str]) -> str:
    return " and ".join(filter(None, [", ".join(names[:-1]), names[-1]]))


RESUME_POSITION = Cause(
    POSITION_KIND,
    find_resume_position_suspects,
    "save the place in the epoch, the scheduler and the scaler too: samerun.checkpoint.save(path, model=...,"
    " optimizer=..., scheduler=..., loader=...)",
    "A checkpoint with the model and the optimizer alone begins the epoch again, or goes on with another learning"
    " rate. What a training holds is more: how far the data loader is, the scheduler, the gradient scaler, moving"
    " averages, counters that decide what is done when.",
)

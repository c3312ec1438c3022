"""A random generator that goes on elsewhere after resuming."""

from __future__ import annotations

from samerun.check.causes.cause import Cause
from samerun.check.evidence.resumption import GLOBAL, ResumeDifference
from samerun.check.evidence.situation import Situation, Suspect
from samerun.record.trace import format as f
from samerun.record.trace.run import Event, RunTraces, select_events
from samerun.record.watching import training_states as states

OF_LEAF = {"rng": states.TORCH, "rng.numpy": states.NUMPY, "rng.python": states.PYTHON}
SHOWN = {states.TORCH: "torch's", states.NUMPY: "NumPy's", states.PYTHON: "Python's"}


def find(situation: Situation) -> list[Suspect]:
    comparison = situation.resume_difference
    if comparison is None or comparison.step is None:
        return []
    return [*own_generator(situation, comparison), *global_generators(situation, comparison)]


def own_generator(situation: Situation, comparison: ResumeDifference) -> list[Suspect]:
    """A generator that the program made: the line that made it, or gave it its seed."""
    drawn, draw = comparison.difference.what == "draw", comparison.difference.a
    if not drawn or draw is None or draw.name in GLOBAL:
        drawn, draw = False, comparison.lost_own_draw
    if draw is None:
        return []
    trace = situation.a.traces.traces[comparison.difference.role]
    made = [e for e in select_events(trace, (f.SEED, f.CREATE), draw.index) if e.line and _is_of(e, draw)]
    seeded = [e for e in made if e.kind == f.SEED] or made
    if not seeded:
        return []
    line = seeded[-1].line
    why = f"{draw.text or draw.name} at line {draw.line} draws from a generator in another state"
    more = f"the generator made at line {line} begins again after the resume: the checkpoint lacks its state"
    return [Suspect("resume-rng", seeded[-1].file, line, (why, more), 0.5 if drawn else 0.6, parts=(states.OWN,))]


def _is_of(event: Event, draw: Event) -> bool:
    """Does an event make or seed the kind of generator that is drawn from? A draw of torch's knows its seed."""
    kinds = {draw.name, "python.Random"} if draw.name.startswith("python") else {draw.name}
    seeded_otherwise = draw.name == "torch.Generator" and event.kind == f.SEED and event.inputs != draw.inputs
    return event.name in kinds and not seeded_otherwise


def global_generators(situation: Situation, comparison: ResumeDifference) -> list[Suspect]:
    """Those that stand elsewhere after the first step, and torch's where the first thing that differs is its draw."""
    draw = comparison.difference.a if comparison.difference.what == "draw" else None
    found = {OF_LEAF[leaf] for leaf in comparison.lost_generators} | (
        {states.TORCH} if draw and draw.name in GLOBAL else set()
    )
    if not found:
        return []
    parts = tuple(part for part in states.PARTS if part in found)
    why: tuple[str, ...] = ()
    if draw is not None:
        why = (f"{draw.text or draw.name} at line {draw.line} draws from a generator in another state",)
    names = " and ".join(SHOWN[part] for part in parts)
    why += (f"after the first step behind the interruption, {names} generator stands elsewhere",)
    file, line = situation.checkpoint_line()
    for part in parts:
        early = put_back_too_early(situation.b.traces, comparison, part)
        if early is not None:
            put, between = early
            file, line = put.file, put.line
            why += (f"line {line} puts {SHOWN[part]} generator back, and line {between.line} draws from it before the"
                    " training goes on",)  # fmt: skip
            break
    return [Suspect("resume-rng", file, line, why, 1.0, parts=parts)]


def put_back_too_early(resumed: RunTraces, comparison: ResumeDifference, part: str) -> tuple[Event, Event] | None:
    """Where a generator is put back after the load, and then drawn from at a line that is none of the training's."""
    if comparison.first_steps is None:
        return None
    ours, its = comparison.first_steps
    training = {(e.file, e.line) for e in ours.events(f.DRAW)}
    put = None
    loaded = False
    for event in select_events(resumed.traces[comparison.difference.role], (f.LOAD, f.SEED, f.DRAW), its.end):
        loaded = loaded or event.kind == f.LOAD
        if event.name != part or not event.line:
            continue
        if event.kind == f.SEED:
            put = event if loaded else None
        elif event.kind == f.DRAW and put is not None and (event.file, event.line) not in training:
            return put, event
    return None


CAUSE = Cause(
    "resume-rng",
    find,
    "save every random generator and put it back: samerun.checkpoint.save(path, model=..., loader=...) does,"
    " samerun.state_dict() alone too",
    "A checkpoint without the states of the random generators goes on with other numbers: another order of the"
    " data, other dropout masks, other augmentation. Generators of the program's own, such as a DataLoader's"
    " `generator=`, have to be saved one by one.",
)

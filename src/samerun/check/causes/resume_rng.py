"""A random generator that goes on elsewhere after resuming."""

from __future__ import annotations

from samerun.check import resumption
from samerun.check.causes.cause import Cause
from samerun.check.situation import Situation, Suspect
from samerun.record import format as f
from samerun.record.run import events_of

SHOWN = {"rng": "torch's", "rng.numpy": "NumPy's", "rng.python": "Python's"}


def find(situation: Situation) -> list[Suspect]:
    if situation.variation != "resume":
        return []
    found = resumption.parting(situation.a.traces, situation.b.traces)
    if found is None:
        return []
    trace = situation.a.traces.traces[found.role]
    draw = found.lost_own
    if draw is not None and not draw.name.endswith(("default", "global")):
        made = [e for e in events_of(trace, (f.CREATE,), draw.index) if e.name == draw.name]
        if made:
            why = f"this generator begins again: at line {draw.line} it stands elsewhere than in the run in one go"
            return [Suspect("resume-rng", made[-1].file, made[-1].line, (why,), 0.5)]
    if not found.lost:
        return []
    file, line = situation.saving_line()
    names = " and ".join(SHOWN[name] for name in found.lost)
    why = f"after the first step behind the interruption, {names} generator stands elsewhere"
    return [Suspect("resume-rng", file, line, (why,), 1.0)]


CAUSE = Cause(
    "resume-rng",
    find,
    "save every random generator and put it back: samerun.checkpoint.save(path, model=..., loader=...) does,"
    " samerun.state_dict() alone too",
    "A checkpoint without the states of the random generators goes on with other numbers: another order of the"
    " data, other dropout masks, other augmentation. Generators of the program's own, such as a DataLoader's"
    " `generator=`, have to be saved one by one.",
)

"""Where nothing that is watched explains a difference: is it made of random bytes that native code draws?"""

from __future__ import annotations

from pathlib import Path

from samerun.check.evidence.line_search import PartingLine
from samerun.check.evidence.situation import Suspect
from samerun.check.execution.runner import Run
from samerun.check.plan import Plan
from samerun.record import pins
from samerun.record.trace import format as f
from samerun.record.trace.run import select_events
from samerun.record.watching.line_follower import NATIVE_DRAW
from samerun.record.watching.native_entropy import library, preloaded, write_stream


def held(plan: Plan) -> Plan:
    """The plan (of a run that was made) with these bytes held still; unchanged where they cannot be."""
    preload = library()
    if preload is None:
        return plan
    stream = Path(plan.watch.folder).parent / f"native-entropy-{plan.watch.pin_value}.bin"
    write_stream(stream, plan.watch.pin_value)
    return plan.with_environment(**preloaded(preload, plan.environment, stream, plan.watch.pin_value))


def counted(plan: Plan) -> Plan:
    """The plan with the lines noted that draw such bytes, where lines are followed."""
    preload = library()
    return plan if preload is None else plan.with_environment(**preloaded(preload, plan.environment, None))


def suspect(followed: Run, parting: PartingLine | None) -> Suspect | None:
    """The last line that drew before the first variable differs; None where none of the user's lines drew."""
    drew: tuple[str, int] | None = None
    trace = followed.traces.main
    for event in select_events(trace, (f.LINE,)) if trace is not None else ():
        if event.name == NATIVE_DRAW:
            drew = (event.file, event.line)
        elif parting is not None and (event.file, event.line, event.name) == (
            parting.file, parting.line, parting.variable,
        ):  # fmt: skip
            break
    if drew is None:
        return None
    why = [f"native code called at line {drew[1]} draws random bytes from the system, past Python"]
    if parting is not None:
        why.append(parting.evidence)
    return Suspect("os-entropy", *drew, tuple(why), 0, (pins.NATIVE_ENTROPY,))

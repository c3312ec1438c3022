"""The variation `resume`: a run that was interrupted and gone on with, against one run through.

What the resumed process computes after its j-th optimizer step must be what the uninterrupted one computed
after step k + j, where k steps were made before the interruption.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from samerun.base.errors import SamerunError
from samerun.base.records import DIFFERENT, SAME, Outcome
from samerun.check.attribution import Found, found
from samerun.check.interruption import CHECKPOINTS
from samerun.check.line_search import loop_around
from samerun.check.plan import Plan
from samerun.check.runner import Run
from samerun.check.situation import Situation, Suspect
from samerun.record import format as f
from samerun.record import pins
from samerun.record.compare import Difference, kind_of_difference
from samerun.record.run import Event, RunTraces, events_of
from samerun.record.steps import Step, final_digests, steps_of

ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=")


@dataclass(frozen=True)
class Settings:
    """Variables to set and arguments to add."""

    environment: dict[str, str]
    arguments: tuple[str, ...]

    def of(self, plan: Plan) -> Plan:
        changed = plan.with_environment(**self.environment)
        return replace(changed, command=(*changed.command, *self.arguments))


@dataclass(frozen=True)
class Resumption:
    """How the program is made to stop early, and how to go on from there."""

    interrupt: Settings
    resume: Settings


class Runs(Protocol):
    """What this needs of a search."""

    outcomes: dict[str, Outcome]

    def run(self, plan: Plan, name: str, vary: tuple[str, ...] = ()) -> Run: ...
    def look_at(self, run: Run) -> None: ...


def parse(interrupt: str | None, resume: str | None) -> Resumption | None:
    """From the two options; None where neither is given.

    Raises SamerunError where only one is, or one is empty.
    """
    if interrupt is None and resume is None:
        return None
    if interrupt is None or resume is None:
        given, lacking = ("--resume", "--interrupt") if interrupt is None else ("--interrupt", "--resume")
        raise SamerunError(
            f"{given} is given and {lacking} is not.",
            hint='Both are needed: --interrupt "STOP_AT=3 CKPT=a.pt" --resume "RESUME=a.pt"',
        )
    return Resumption(settings("--interrupt", interrupt), settings("--resume", resume))


def settings(option: str, text: str) -> Settings:
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise SamerunError(f"{option} {text}: {error}.", hint="Close the quotation mark.") from error
    count = next((i for i, word in enumerate(words) if not ASSIGNMENT.match(word)), len(words))
    if not words:
        raise SamerunError(f"{option}: nothing is set.", hint='Write variables first, then arguments: "A=1 --flag"')
    pairs = [word.split("=", 1) for word in words[:count]]
    return Settings({pair[0]: pair[1] for pair in pairs}, tuple(words[count:]))


def check(search: Runs, first: Run, resumption: Resumption) -> tuple[Situation, Found] | None:
    """Interrupt, resume, compare; the first difference and its cause, or None when there is none.

    Raises SamerunError when the program makes no optimizer step, or was not interrupted.
    """
    resumed, offset = interrupted_and_resumed(search, first, resumption, ())
    difference = first_difference(first, resumed, offset)
    detail = f"interrupted after step {offset} of {first.steps}, then resumed"
    if difference is None:
        search.outcomes["resume"] = Outcome("resume", SAME, detail)
        return None
    search.outcomes["resume"] = Outcome("resume", DIFFERENT, detail)
    suspect = suspect_of(difference, first, resumed)
    path = str(first.folder.parent / "generators")
    again, at = interrupted_and_resumed(search, first, resumption, (pins.GENERATORS,), path)
    still = first_difference(first, again, at)
    if still is None or still.step > difference.step:
        if suspect.kind != "resume-rng":
            suspect = at_save("resume-rng", first, resumed, "a generator goes on from elsewhere")
        suspect = replace(suspect, certain=True)
    elif suspect.kind != "resume-rng":
        more = (*suspect.evidence, "with the state of every generator restored the difference stays")
        suspect = replace(suspect, evidence=more)
    return Situation("resume", first, resumed, difference), found(suspect, None)


def interrupted_and_resumed(
    search: Runs, first: Run, resumption: Resumption, names: Sequence[str], path: str | None = None
) -> tuple[Run, int]:
    """The resumed run, and how many of the uninterrupted run's steps lie before it."""
    tail = "-pinned" if names else ""
    shared = first.folder.parent / f"checkpoints{tail}"
    shared.mkdir(exist_ok=True)
    plan = first.plan.with_pins(*names).with_watch(generators=path).with_environment(**{CHECKPOINTS: str(shared)})
    stopped = search.run(resumption.interrupt.of(plan), f"interrupted{tail}", ("resume",))
    search.look_at(stopped)
    if not first.steps:
        raise SamerunError(
            "--resume: the program makes no optimizer step that samerun sees, so there is nothing to compare.",
            hint="Only programs that train with torch.optim can be compared when they are resumed.",
        )
    if stopped.steps >= first.steps:
        raise SamerunError(
            f"--interrupt: the program was not interrupted: it made {stopped.steps} optimizer steps of {first.steps}.",
            hint=f"Does it read these settings? {shown(resumption.interrupt)}",
        )
    resumed = search.run(resumption.resume.of(plan), f"resumed{tail}", ("resume",))
    search.look_at(resumed)
    offset = first.steps - resumed.steps
    return resumed, offset if 0 <= offset <= stopped.steps else stopped.steps


def shown(given: Settings) -> str:
    return " ".join([*(f"{k}={v}" for k, v in given.environment.items()), *given.arguments])


def first_difference(whole: Run, resumed: Run, offset: int) -> Difference | None:
    """The first difference after the interruption, in the main process."""
    one, other = whole.traces.main, resumed.traces.main
    if one is None or other is None or resumed.failed:
        return Difference("process", "main", "main", None, None, offset, 0)
    through, after = steps_of(one), steps_of(other)
    for x, y in zip(through[offset:], after, strict=False):
        if x.leaves == y.leaves:
            continue
        return inside(x, y) or Difference("leaf", one.role, "main", x.end, y.end, x.number, 0)
    if len(through) - offset != len(after):
        end = through[-1].end
        return Difference("operator", one.role, "main", end, after[-1].end if after else None, len(through), 0)
    if final_digests(one) != final_digests(other):
        last = events_of(one, (f.FINAL,))[-1:]
        return Difference("final", one.role, "main", last[0] if last else None, None, len(through), 0)
    return None


def inside(x: Step, y: Step) -> Difference | None:
    """The first operator or draw that differs in a step; a resumed process sets up before its first one.

    The steps are laid end to end: as far back as they do the same, they are compared.
    """
    count = 0
    for a, b in zip(reversed(x.events), reversed(y.events), strict=False):
        if (a.kind, a.name, a.file, a.line) != (b.kind, b.name, b.file, b.line):
            break
        count += 1
    for a, b in zip(x.events[len(x.events) - count :], y.events[len(y.events) - count :], strict=True):
        if (a.inputs, a.outputs, a.aux) != (b.inputs, b.outputs, b.aux):
            what = "draw" if a.kind == f.DRAW else kind_of_difference(a, b)
            return Difference(what, x.role, "main", a, b, x.number, 0)
    return None


# --- why -------------------------------------------------------------------------------------------------
def suspect_of(difference: Difference, first: Run, resumed: Run) -> Suspect:
    event = difference.a
    if event is None:
        return at_save("resume-position", first, resumed, "the resumed run does not go on to the end")
    if difference.what == "draw":
        return of_draw(event, first, resumed)
    if event.phase == "optimizer" or difference.what in ("leaf", "scalars", "final"):
        why = f"{event.name} at line {event.line} uses another number: a schedule or an optimizer begins again"
        return at_save("resume-position", first, resumed, why)
    line = loop_around(event.file, event.line) or event.line
    why = f"the data that {event.name} gets at line {event.line} is another one"
    return Suspect("resume-position", event.file, line, (why,), 0.0)


def of_draw(draw: Event, first: Run, resumed: Run) -> Suspect:
    """A generator in another state: where it is made, or for the global one where the checkpoint is saved."""
    why = f"{draw.text or draw.name} at line {draw.line} draws from a generator in another state"
    if draw.name == "torch.Generator":
        main = first.traces.main
        made = [
            e for e in (events_of(main, (f.SEED, f.CREATE), draw.index) if main is not None else [])
            if e.name == "torch.Generator" and e.line and (e.kind == f.CREATE or e.inputs == draw.inputs)
        ]  # fmt: skip
        seeded = [e for e in made if e.kind == f.SEED] or made
        if seeded:
            more = f"the generator made at line {seeded[-1].line} begins again after the resume"
            return Suspect("resume-rng", seeded[-1].file, seeded[-1].line, (why, more), 0.0)
    return at_save("resume-rng", first, resumed, why)


def at_save(kind: str, first: Run, resumed: Run, why: str) -> Suspect:
    """The line that saves the checkpoint, or where it is loaded, or nowhere."""
    stopped = RunTraces(resumed.folder.parent / "interrupted").main
    saves = events_of(stopped, (f.SAVE,)) if stopped is not None else []
    loads = events_of(resumed.traces.main, (f.LOAD,)) if resumed.traces.main is not None else []
    places = [e for e in (*saves[-1:], *loads[:1]) if e.line]
    if not places:
        return Suspect(kind, "", 0, (why,), 0.0)
    return Suspect(kind, places[0].file, places[0].line, (why, f"line {places[0].line} does not save all of it"), 0.0)


__all__ = ["Resumption", "check", "parse"]

"""The whole answer of a check: search, look behind what is ignored, and try what samerun alone mends."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from samerun.base.records import DIFFERENT, SAME, TROUBLE, CheckReport, FoundCause, Hazard, Outcome, WithSamerun
from samerun.check.execution.runner import RunFailed
from samerun.check.plan import Plan
from samerun.check.search import ignoring
from samerun.check.search.ignoring import Ignore
from samerun.check.search.rounds import Finding, Rounds, again, rounds
from samerun.check.search.search import Search

Goes = Callable[[FoundCause], str]
Covers = Callable[[FoundCause], bool]


@dataclass(frozen=True)
class Mend:
    """`held`: the plan as `samerun run` runs the program; `seed`: of every generator."""

    held: Plan
    seed: int


def answer(search: Search, ignored: Sequence[Ignore], mend: Mend | None) -> CheckReport:
    """Raises RunFailed when the program does not end well by itself."""

    def covered(cause: FoundCause) -> bool:
        return ignoring.covered(ignored, cause)

    def goes_on(cause: FoundCause) -> str:
        if covered(cause):
            return f"ignored: {cause.kind} at {cause.file}:{cause.line}" if cause.file else f"ignored: {cause.kind}"
        return f"differs already: {cause.kind}" if mend is not None else ""

    made = rounds(search, goes_on)
    counted = in_order([f for f in made.findings if not covered(f.cause)])
    report = shown(made, counted)
    hazards = tuple(hazard(f) for f in counted)
    left_out = tuple(replace(hazard(f), ignored=True) for f in made.findings if covered(f.cause))
    notes = [*report.notes, *told_ignored(made, covered), *unused(ignored, made, report)]
    if mend is None:
        return replace(report, causes=hazards + left_out, notes=tuple(notes))
    if report.verdict != DIFFERENT:
        return replace(
            report, causes=left_out, notes=(*notes, "--fix on: nothing differs, so there is nothing to mend.")
        )
    if made.stuck and not (made.findings and covered(made.findings[-1].cause)):
        notes.append(f"{sentence(made.stuck)}: there may be more behind it.")
    held, hazards = mended(again(search, mend.held, {}), goes_on, mend.seed, hazards, covered)
    return replace(
        report,
        causes=hazards + left_out,
        notes=(*notes, held.detail),
        with_samerun=held,
        runs=tuple(search.record(run) for run in search.runs),
    )


def mended(
    search: Search, goes_on: Goes, seed: int, hazards: tuple[Hazard, ...], covered: Covers
) -> tuple[WithSamerun, tuple[Hazard, ...]]:
    """The same search under what `samerun run` does; the hazards, each with whether it is gone."""
    command = "samerun run" + (f" --seed {seed}" if seed else "")
    search.prefix = "fix-"
    try:
        made = rounds(search, goes_on)
    except RunFailed as error:
        said = error.said.splitlines()
        why = said[-1] if said else error.message
        return WithSamerun(TROUBLE, seed, f"With {command} the program fails: {why}"), hazards
    left = tuple(hazard(f) for f in in_order([f for f in made.findings if not covered(f.cause)]))
    if not left and not unexplained(made):
        text = f"With {command} it is the same: samerun alone mends it."
        return WithSamerun(SAME, seed, text), tuple(replace(h, mended=True) for h in hazards)
    there = {place(h) for h in left}
    unknown = None if made.stuck else True
    judged = tuple(replace(h, mended=False if place(h) in there else unknown) for h in hazards)
    gone = ", ".join(place(h) for h in judged if h.mended)
    text = f"With {command} it still differs: {', '.join(place(h) for h in left) or made.stuck}."
    text += f" Mended by it: {gone}." if gone else ""
    return WithSamerun(DIFFERENT, seed, text, left), judged


def shown(made: Rounds, counted: Sequence[Finding]) -> CheckReport:
    """The report of the finding that comes first, or that nothing is left."""
    assert made.last is not None
    outcomes = {one.name: one for one in made.last.variations}
    if counted:
        for finding in counted:
            outcomes.update({one.name: one for one in finding.report.variations if one.outcome == DIFFERENT})
        return replace(counted[0].report, variations=tuple(outcomes.values()), runs=made.last.runs)
    if made.last.verdict != DIFFERENT or unexplained(made):
        return made.last
    ignored = made.findings[-1].place
    for one in made.last.variations:
        if one.outcome == DIFFERENT:
            outcomes[one.name] = Outcome(one.name, "skipped", f"{one.detail}; ignored: {ignored}")
    return replace(
        made.last, verdict=SAME, first_difference=None, cause=None, fix=None, spread=None, others=(),
        variations=tuple(outcomes.values()),
    )  # fmt: skip


def unexplained(made: Rounds) -> bool:
    """Did the last round find a difference without a cause?"""
    return bool(made.stuck) and not (made.findings and made.findings[-1].report is made.last)


def in_order(findings: Sequence[Finding]) -> list[Finding]:
    """What a mere rerun shows comes first, in the order in which one stood behind the other; then by first event."""

    def key(finding: Finding) -> tuple[bool, int]:
        first = finding.report.first_difference
        by_itself = first is None or first.variation == "rerun"
        return not by_itself, 0 if by_itself or first is None else first.event

    return sorted(findings, key=key)


def hazard(finding: Finding) -> Hazard:
    cause, first = finding.cause, finding.report.first_difference
    variation = first.variation if first is not None else ""
    return Hazard(cause.kind, cause.file, cause.line, cause.evidence, cause.certain, variation, finding.found.fix)


def place(one: Hazard) -> str:
    return one.kind + (f" at {one.file}:{one.line}" if one.file else "")


def told_ignored(made: Rounds, covered: Covers) -> list[str]:
    """A line for everything that is not counted, with what was done to look behind it."""
    lines = [f"Ignored: {f.place}" + (f" ({f.how})." if f.how else ".") for f in made.findings if covered(f.cause)]
    if made.stuck and made.findings and covered(made.findings[-1].cause):
        lines.append(f"{sentence(made.stuck)}: what may be behind it was not looked for.")
    return lines


def unused(ignored: Sequence[Ignore], made: Rounds, report: CheckReport) -> list[str]:
    """A word about rules that matched nothing, once everything was looked at."""
    if report.verdict == DIFFERENT:
        return []
    return [f"--ignore {r.text} matched nothing." for r in ignoring.unmet(ignored, [f.cause for f in made.findings])]


def sentence(text: str) -> str:
    return text[:1].upper() + text[1:]

"""What lies behind a finding: its source is held still, and the search is made again."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from samerun.base.records import DIFFERENT, CheckReport, FoundCause
from samerun.check.attribution.attribution import Found
from samerun.check.attribution.confirmation import holding
from samerun.check.evidence.situation import Situation
from samerun.check.plan import Plan
from samerun.check.search.places import relative
from samerun.check.search.search import Search
from samerun.check.variations.table import VARIATIONS
from samerun.record import pins

MOST_ROUNDS = 24
"""So many findings at most, one behind the other."""
AT_A_LINE = {"listing_order": "listing", "clock": "clock", "memory": "memory"}
"""Variations that can spare one line, and what they are called inside the process."""


@dataclass(frozen=True)
class Finding:
    """One cause of a difference, with the report of the round that found it. `how`: what was done to look behind it."""

    report: CheckReport
    found: Found
    cause: FoundCause
    how: str = ""

    @property
    def place(self) -> str:
        return self.cause.kind + (f" at {self.cause.file}:{self.cause.line}" if self.cause.file else "")


@dataclass
class Rounds:
    """Findings one behind the other. `last`: the report of the last round. `stuck`: why there is no further one."""

    findings: list[Finding] = field(default_factory=list)
    last: CheckReport | None = None
    stuck: str = ""


def rounds(search: Search, goes_on: Callable[[FoundCause], str]) -> Rounds:
    """Search, and search again behind every finding for which `goes_on` gives a reason; "": that is the answer.

    Raises RunFailed when the program does not end well by itself.
    """
    made = Rounds()
    while True:
        made.last = search.check()
        if made.last.verdict != DIFFERENT:
            return made
        if search.answer is None:
            made.stuck = "no cause was found for a difference"
            return made
        situation, found = search.answer
        cause = relative(found.cause)
        reason = goes_on(cause)
        finding = Finding(made.last, found, cause)
        if not reason:
            made.findings.append(finding)
            return made
        following = past(search, situation, found, reason) if len(made.findings) + 1 < MOST_ROUNDS else None
        made.findings.append(replace(finding, how=following[1] if following is not None else ""))
        if following is None:
            made.stuck = f"{finding.place} cannot be held still"
            return made
        search = following[0]


def past(search: Search, situation: Situation, found: Found, reason: str) -> tuple[Search, str] | None:
    """A search in which the source of a finding is held still, and how; None where that cannot be done."""
    if found.variation or situation.variation == "resume":
        return past_variation(search, found.variation or "resume", found, reason)
    suspect = found.suspect
    if suspect is None:
        return None
    for names in (at_its_line(suspect.pins, found.cause), suspect.pins):
        fresh = set(names) - set(search.plan.watch.pins)
        if fresh or (names and set(suspect.without) - set(search.plan.without)):
            plan = holding(search.plan, suspect, names)
            return again(search, plan, search.put_aside), "held still: " + ", ".join(shortly(name) for name in names)
    return None


def past_variation(search: Search, names: str, found: Found, reason: str) -> tuple[Search, str] | None:
    """The variation spares the line of the finding where it can; else it is not varied any more."""
    what, plan = AT_A_LINE.get(names), search.plan
    line = (what or "", found.suspect.file if found.suspect is not None else "", found.cause.line)
    if what and found.cause.file and line not in plan.watch.unvaried_lines:
        spared = (*plan.watch.unvaried_lines, line)
        plan = plan.with_watch(unvaried_lines=spared)
        return again(search, plan, search.put_aside), f"{names} is not varied at this line"
    each = [name for name in names.split("+") if name not in search.put_aside]
    if not each:
        return None
    chosen = {v.name for v in search.variations}
    more = tuple(v for v in VARIATIONS if v.name in each and v.name not in chosen)
    following = again(search, plan, {**search.put_aside, **dict.fromkeys(each, reason)})
    following.variations = (*search.variations, *more)
    if "resume" in each:
        following.variations = tuple(v for v in following.variations if v.name != "resume")
    return following, f"no longer varied: {', '.join(each)}"


def again(search: Search, plan: Plan, put_aside: Mapping[str, str], brief: bool = True) -> Search:
    """The same search from the start, with other surroundings; the runs so far are kept in its report."""
    return replace(
        search, plan=plan, put_aside=put_aside, brief=brief, outcomes={}, notes=[], reruns=0, differing=0,
        answer=None, grown=(),
    )  # fmt: skip


def at_its_line(names: tuple[str, ...], cause: FoundCause) -> tuple[str, ...]:
    """Pins limited to the line of the cause, so that another hazard of the same source still shows."""
    if not cause.file:
        return names
    return tuple(f"{name}@{cause.file}:{cause.line}" if name in pins.SEPARABLE else name for name in names)


def shortly(pin: str) -> str:
    return pin.partition("@")[0]

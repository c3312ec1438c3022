"""Every cause of a check: search, look behind what was found, leave out what is ignored, try `samerun run`."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from samerun.base.errors import SamerunError
from samerun.base.records import DIFFERENT, SAME, TROUBLE, CheckReport, FoundCause, Hazard, Outcome, WithSamerun
from samerun.base.text import did_you_mean_prefix_or_empty
from samerun.check.attribution.attribution import VARIED_AT_LINE, AttributedCause
from samerun.check.attribution.confirmation import add_pins_and_settings_they_need
from samerun.check.causes.table import CAUSES
from samerun.check.evidence.situation import Situation
from samerun.check.execution.runner import RunFailed
from samerun.check.plan import RunPlan
from samerun.check.search.report_records import make_cause_path_relative, make_run_record
from samerun.check.search.search import Search
from samerun.check.variations.table import VARIATIONS
from samerun.record import pins

ReasonToContinue = Callable[[FoundCause], str]
IsIgnored = Callable[[FoundCause], bool]
MAX_ROUNDS = 24
"""The most findings that are looked behind, one after the other."""


@dataclass(frozen=True)
class CauseFinding:
    """One cause of a difference, with the report that named it. `how`: what was done to search behind it."""

    report: CheckReport
    found: AttributedCause
    cause: FoundCause
    how: str = ""

    @property
    def description(self) -> str:
        return self.cause.kind + (f" at {self.cause.file}:{self.cause.line}" if self.cause.file else "")


@dataclass
class SuccessiveFindings:
    """Findings in the order of the searches. `last`: the last report. `stuck`: why no further search was possible."""

    findings: list[CauseFinding] = field(default_factory=list)
    last: CheckReport | None = None
    stuck: str = ""


def find_successive_causes(search: Search, reason_to_continue: Callable[[FoundCause], str]) -> SuccessiveFindings:
    """Search, and search again behind every finding for which `reason_to_continue` gives a reason; "" ends it.

    Raises RunFailed if the program does not end well by itself.
    """
    # After the first difference everything differs, so two runs show one cause only. To see the next one, the source
    # of the finding is pinned at its line alone where it can be (so that a second hazard of the kind still shows), and
    # the whole search is made again (decision 24).
    successive = SuccessiveFindings()
    while True:
        successive.last = search.check()
        if successive.last.verdict != DIFFERENT:
            return successive
        if search.reported is None:
            successive.stuck = "no cause was found for a difference"
            return successive
        situation, found = search.reported
        cause = make_cause_path_relative(found.cause)
        reason = reason_to_continue(cause)
        finding = CauseFinding(successive.last, found, cause)
        if not reason:
            successive.findings.append(finding)
            return successive
        following = (
            prepare_follow_up_search_with_cause_pinned(search, situation, found, reason)
            if len(successive.findings) + 1 < MAX_ROUNDS
            else None
        )
        successive.findings.append(replace(finding, how=following.how if following is not None else ""))
        if following is None:
            successive.stuck = f"{finding.description} cannot be held still"
            return successive
        search = following.search


class FollowUpSearch(NamedTuple):
    """A search behind a finding, not run yet, and what was done so that the finding does not show again."""

    search: Search
    how: str


def prepare_follow_up_search_with_cause_pinned(
    search: Search, situation: Situation, attributed: AttributedCause, reason: str
) -> FollowUpSearch | None:
    """A search in which the source of a finding is pinned, and how; None if it cannot be pinned."""
    if attributed.variation or situation.variation == "resume":
        return prepare_search_without_variation(search, attributed.variation or "resume", attributed, reason)
    suspect = attributed.suspect
    if suspect is None:
        return None
    # Pins at the line first: with the whole source pinned, a second hazard of the same kind would not show. If the line
    # is pinned already and the difference stayed, the source is read elsewhere, and all of it is pinned. Without a new
    # pin the next search would find the same again, so there is none (decision 24).
    for names in (append_cause_line_to_separable_pins(suspect.pins, attributed.cause), suspect.pins):
        fresh = set(names) - set(search.plan.watch.pins)
        if fresh or (names and set(suspect.without) - set(search.plan.without)):
            plan = add_pins_and_settings_they_need(search.plan, suspect, names)
            how = "held still: " + ", ".join(strip_line_from_pin(name) for name in names)
            return FollowUpSearch(make_fresh_search_with_plan(search, plan, search.not_varied), how)
    return None


def prepare_search_without_variation(
    search: Search, plus_separated_names: str, attributed: AttributedCause, reason: str
) -> FollowUpSearch | None:
    """A search whose variation leaves out the line of the finding if it can, and is not varied otherwise."""
    what, plan = VARIED_AT_LINE.get(plus_separated_names), search.plan
    line = (what or "", attributed.suspect.file if attributed.suspect is not None else "", attributed.cause.line)
    if what and attributed.cause.file and line not in plan.watch.unvaried_lines:
        spared = (*plan.watch.unvaried_lines, line)
        plan = plan.with_watch(unvaried_lines=spared)
        following = make_fresh_search_with_plan(search, plan, search.not_varied)
        return FollowUpSearch(following, f"{plus_separated_names} is not varied at this line")
    each = [name for name in plus_separated_names.split("+") if name not in search.not_varied]
    if not each:
        return None
    chosen = {v.name for v in search.variations}
    more = tuple(v for v in VARIATIONS if v.name in each and v.name not in chosen)
    following = make_fresh_search_with_plan(search, plan, {**search.not_varied, **dict.fromkeys(each, reason)})
    following.variations = (*search.variations, *more)
    if "resume" in each:
        following.variations = tuple(v for v in following.variations if v.name != "resume")
    return FollowUpSearch(following, f"no longer varied: {', '.join(each)}")


def make_fresh_search_with_plan(
    search: Search, plan: RunPlan, not_varied: Mapping[str, str], skip_values: bool = True
) -> Search:
    """The same search from the start with another plan; the runs so far stay in its report."""
    return replace(
        search, plan=plan, not_varied=not_varied, skip_values=skip_values, outcomes={}, notes=[], reruns=0,
        differing_rerun_count=0, reported=None, growth_points=(),
    )  # fmt: skip


def append_cause_line_to_separable_pins(pin_names: tuple[str, ...], cause: FoundCause) -> tuple[str, ...]:
    """Pins limited to the line of the cause, so that another hazard of the same source still shows."""
    if not cause.file:
        return pin_names
    return tuple(f"{name}@{cause.file}:{cause.line}" if name in pins.SEPARABLE else name for name in pin_names)


def strip_line_from_pin(pin: str) -> str:
    return pin.partition("@")[0]


# --- what is counted, and what `samerun run` alone mends -------------------------------------------------------
@dataclass(frozen=True)
class SamerunRunPlan:
    """The plan as `samerun run` runs the program, and the seed of every generator."""

    plan: RunPlan
    seed: int


def search_past_ignored_findings_and_report(
    search: Search, ignore_rules: Sequence[IgnoreRule], samerun_run: SamerunRunPlan | None
) -> CheckReport:
    """The report of a check, with findings that are ignored left out and those of `samerun run` compared.

    Raises RunFailed if the program does not end well by itself.
    """

    def is_ignored(cause: FoundCause) -> bool:
        return matches_any_rule(ignore_rules, cause)

    def reason_to_continue(cause: FoundCause) -> str:
        if is_ignored(cause):
            return f"ignored: {cause.kind} at {cause.file}:{cause.line}" if cause.file else f"ignored: {cause.kind}"
        return f"differs already: {cause.kind}" if samerun_run is not None else ""

    successive = find_successive_causes(search, reason_to_continue)
    counted = sort_findings([f for f in successive.findings if not is_ignored(f.cause)])
    report = build_report_of_first_counted_finding(successive, counted)
    hazards = tuple(finding_to_hazard(f) for f in counted)
    left_out = tuple(replace(finding_to_hazard(f), ignored=True) for f in successive.findings if is_ignored(f.cause))
    notes = [
        *report.notes,
        *make_ignored_notes(successive, is_ignored),
        *make_unmatched_rule_notes(ignore_rules, successive, report),
    ]
    if samerun_run is None:
        return replace(report, causes=hazards + left_out, notes=tuple(notes))
    if report.verdict != DIFFERENT:
        return replace(
            report, causes=left_out, notes=(*notes, "--fix on: nothing differs, so there is nothing to mend.")
        )
    if successive.stuck and not (successive.findings and is_ignored(successive.findings[-1].cause)):
        notes.append(f"{capitalize_first(successive.stuck)}: there may be more behind it.")
    held, hazards = recheck_hazards_under_samerun_run(
        make_fresh_search_with_plan(search, samerun_run.plan, {}),
        reason_to_continue,
        samerun_run.seed,
        hazards,
        is_ignored,
    )
    return replace(
        report,
        causes=hazards + left_out,
        notes=(*notes, held.detail),
        with_samerun=held,
        runs=tuple(make_run_record(run, search.saved) for run in search.runs),
    )


def recheck_hazards_under_samerun_run(
    search: Search, reason_to_continue: ReasonToContinue, seed: int, hazards: tuple[Hazard, ...], is_ignored: IsIgnored
) -> tuple[WithSamerun, tuple[Hazard, ...]]:
    """Search again under what `samerun run` sets; returns the hazards, each with whether it is gone."""
    command = "samerun run" + (f" --seed {seed}" if seed else "")
    search.prefix = "fix-"
    try:
        successive = find_successive_causes(search, reason_to_continue)
    except RunFailed as error:
        said = error.stderr_tail.splitlines()
        why = said[-1] if said else error.message
        return WithSamerun(TROUBLE, seed, f"With {command} the program fails: {why}"), hazards
    left = tuple(
        finding_to_hazard(f) for f in sort_findings([f for f in successive.findings if not is_ignored(f.cause)])
    )
    if not left and not has_unexplained_difference(successive):
        text = f"With {command} it is the same: samerun alone mends it."
        return WithSamerun(SAME, seed, text), tuple(replace(h, mended=True) for h in hazards)
    there = {describe_hazard(h) for h in left}
    unknown = None if successive.stuck else True
    judged = tuple(replace(h, mended=False if describe_hazard(h) in there else unknown) for h in hazards)
    gone = ", ".join(describe_hazard(h) for h in judged if h.mended)
    text = f"With {command} it still differs: {', '.join(describe_hazard(h) for h in left) or successive.stuck}."
    text += f" Mended by it: {gone}." if gone else ""
    return WithSamerun(DIFFERENT, seed, text, left), judged


def build_report_of_first_counted_finding(
    successive: SuccessiveFindings, counted_findings: Sequence[CauseFinding]
) -> CheckReport:
    """The report of the first finding that counts, or a report that nothing is left."""
    assert successive.last is not None
    outcomes = {one.name: one for one in successive.last.variations}
    if counted_findings:
        for finding in counted_findings:
            outcomes.update({one.name: one for one in finding.report.variations if one.outcome == DIFFERENT})
        return replace(counted_findings[0].report, variations=tuple(outcomes.values()), runs=successive.last.runs)
    if successive.last.verdict != DIFFERENT or has_unexplained_difference(successive):
        return successive.last
    ignored = successive.findings[-1].description
    for one in successive.last.variations:
        if one.outcome == DIFFERENT:
            outcomes[one.name] = Outcome(one.name, "skipped", f"{one.detail}; ignored: {ignored}")
    return replace(
        successive.last, verdict=SAME, first_difference=None, cause=None, fix=None, spread=None, others=(),
        variations=tuple(outcomes.values()),
    )  # fmt: skip


def has_unexplained_difference(successive: SuccessiveFindings) -> bool:
    """Whether the last search found a difference without a cause."""
    return bool(successive.stuck) and not (successive.findings and successive.findings[-1].report is successive.last)


def sort_findings(findings: Sequence[CauseFinding]) -> list[CauseFinding]:
    """Findings of a plain rerun first, in the order in which they were found; then by the event that differs first."""

    def key(finding: CauseFinding) -> tuple[bool, int]:
        first = finding.report.first_difference
        by_itself = first is None or first.variation == "rerun"
        return not by_itself, 0 if by_itself or first is None else first.event

    return sorted(findings, key=key)


def finding_to_hazard(finding: CauseFinding) -> Hazard:
    cause, first = finding.cause, finding.report.first_difference
    variation = first.variation if first is not None else ""
    return Hazard(cause.kind, cause.file, cause.line, cause.evidence, cause.certain, variation, finding.found.fix)


def describe_hazard(hazard: Hazard) -> str:
    return hazard.kind + (f" at {hazard.file}:{hazard.line}" if hazard.file else "")


def make_ignored_notes(successive: SuccessiveFindings, is_ignored: IsIgnored) -> list[str]:
    """A note for each ignored finding, with what was done to search behind it."""
    lines = [
        f"Ignored: {f.description}" + (f" ({f.how})." if f.how else ".")
        for f in successive.findings
        if is_ignored(f.cause)
    ]
    if successive.stuck and successive.findings and is_ignored(successive.findings[-1].cause):
        lines.append(f"{capitalize_first(successive.stuck)}: what may be behind it was not looked for.")
    return lines


def make_unmatched_rule_notes(
    ignore_rules: Sequence[IgnoreRule], successive: SuccessiveFindings, report: CheckReport
) -> list[str]:
    """A note for each rule that matched nothing, unless the search ended early at a difference."""
    if report.verdict == DIFFERENT:
        return []
    causes = [finding.cause for finding in successive.findings]
    return [f"--ignore {rule.text} matched nothing." for rule in unmatched_rules(ignore_rules, causes)]


def capitalize_first(text: str) -> str:
    return text[:1].upper() + text[1:]


# --- `--ignore KIND[:FILE[:LINE]]`: findings that are not to be counted
@dataclass(frozen=True)
class IgnoreRule:
    """`file` "": anywhere; `line` 0: at any line of the file. `text`: what the user wrote."""

    kind: str
    file: str
    line: int
    text: str

    def matches(self, cause: FoundCause) -> bool:
        """Whether a finding is not to be counted. A finding without a line is only covered by its kind alone."""
        if cause.kind != self.kind or (self.line and cause.line != self.line):
            return False
        return not self.file or (bool(cause.file) and os.path.realpath(cause.file) == os.path.realpath(self.file))


def matches_any_rule(rules: Sequence[IgnoreRule], cause: FoundCause) -> bool:
    return any(rule.matches(cause) for rule in rules)


def unmatched_rules(rules: Sequence[IgnoreRule], causes: Sequence[FoundCause]) -> list[IgnoreRule]:
    """The rules that match none of these causes."""
    return [rule for rule in rules if not any(rule.matches(cause) for cause in causes)]


def parse_ignore_rule(text: str) -> IgnoreRule:
    """Raises SamerunError for an unknown kind, an empty file name, or a line that is not a number from 1."""
    kind, *rest = text.split(":", 1)
    kinds = [cause.kind for cause in CAUSES]
    if kind not in kinds:
        raise SamerunError(
            f"--ignore {text}: there is no kind of cause {kind!r}.",
            hint=f"{did_you_mean_prefix_or_empty(kind, kinds)}There are: {', '.join(kinds)}.",
        )
    if not rest:
        return IgnoreRule(kind, "", 0, text)
    file, colon, last = rest[0].rpartition(":")
    if not colon:
        file, last = rest[0], ""
    if not file or (colon and not (last.isdecimal() and int(last) > 0)):
        wrong = "no file is named behind the kind" if not file else f"{last!r} is no line: lines count from 1"
        raise SamerunError(f"--ignore {text}: {wrong}.", hint="Write --ignore KIND, KIND:FILE or KIND:FILE:LINE.")
    return IgnoreRule(kind, file, int(last) if last else 0, text)

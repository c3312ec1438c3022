"""One run in which every operator is executed twice: what differs between the two needs no second run."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from samerun.base.records import DIFFERENT, SAME, CheckReport, FirstDifference, Fix, FoundCause, Outcome
from samerun.base.records import Hazard as HazardRecord
from samerun.base.user_code import place as shown
from samerun.check.attribution import attribution
from samerun.check.evidence.situation import Suspect
from samerun.check.evidence.values import Elements, compare_kept
from samerun.check.execution.runner import Run, RunFailed
from samerun.check.plan import Plan, Variation
from samerun.check.search.ignoring import Ignore, covered, unmet
from samerun.check.search.places import relative_path
from samerun.check.search.run_status import must_end_well
from samerun.check.search.search import Search
from samerun.check.variations.memory import memory
from samerun.record.trace import format as f
from samerun.record.trace.reader import Trace
from samerun.record.trace.run import Event, select_events
from samerun.record.watching.double import double_findings as found

KINDS = {
    found.KERNEL: "nondeterministic-operator",
    found.UNWRITTEN: "uninitialised-memory",
    found.INSIDE: "uninitialised-memory",
    found.RACE: "thread-race",
}
MOST_NOTES = 5
OTHER_OPERATOR = (
    "use another operator there, or another driver or backend of it, and report it to PyTorch:"
    " it reads memory of its own that it has not written"
)


def doubled(plan: Plan, executions: int) -> Plan:
    """Execute every operator so often; fresh memory holds zeros in the program's own execution."""
    return memory(plan, False).with_watch(executions=executions, depth="ops")


@dataclass
class Hazard:
    """One place in the program that makes results vary, and where that was seen."""

    kind: str
    file: str
    line: int
    first: Event
    step: int
    what: str
    elements: Elements | None
    certain: bool
    evidence: list[str] = field(default_factory=list)

    def suspect(self) -> Suspect:
        return Suspect(self.kind, self.file, self.line, tuple(self.evidence), 0.0, certain=self.certain)

    def cause(self) -> FoundCause:
        return FoundCause(self.kind, relative_path(self.file), self.line, tuple(self.evidence), self.certain)

    def fix(self) -> Fix:
        usual = attribution.found(self.suspect(), None).fix
        return replace(usual, summary=OTHER_OPERATOR) if self.what == found.INSIDE else usual


def variation(executions: int) -> Variation:
    """What the report calls it."""
    times = "twice" if executions == 2 else f"{executions} times"
    return Variation("double", "double", f"every operator executed {times} in one run", lambda plan, vary: plan, "")


def check(search: Search, executions: int, ignored: Sequence[Ignore] = ()) -> CheckReport:
    """Raises RunFailed when the program does not end well. `ignored`: findings that do not count."""
    run = search.run(doubled(search.plan, executions), "double")
    search.look_at(run)
    hazards, notes = look(run)
    try:
        must_end_well(run)
    except RunFailed as error:
        if hazards:
            seen = ", ".join(f"{each.kind} at {shown(each.file, each.line)}" for each in hazards)
            error.hint = f"{error.hint} Found before it ended: {seen}."
        raise
    left_out = [hazard for hazard in hazards if covered(ignored, hazard.cause())]
    hazards = [hazard for hazard in hazards if hazard not in left_out]
    notes += [f"Ignored: {each.kind} at {shown(each.file, each.line)}." for each in left_out]
    without = unmet(ignored, [hazard.cause() for hazard in left_out])
    notes += [f"--ignore {rule.text}: nothing of the kind was found." for rule in without]
    counted = tuple(record(hazard, False) for hazard in hazards) + tuple(record(hazard, True) for hazard in left_out)
    verdict = DIFFERENT if hazards else SAME
    asked = variation(executions)
    search.outcomes[asked.name] = Outcome(asked.name, verdict, asked.detail)
    search.notes += notes
    if not hazards:
        return replace(search.report(SAME), causes=counted)
    lead, rest = hazards[0], [hazard.suspect() for hazard in hazards[1:]]
    answer = replace(attribution.found(lead.suspect(), lead.elements, rest), fix=lead.fix())
    report = search.report(DIFFERENT, found=answer)
    sure = {(hazard.kind, relative_path(hazard.file), hazard.line) for hazard in hazards if hazard.certain}
    others = tuple(replace(o, certain=(o.kind, o.file, o.line) in sure) for o in report.others)
    return replace(report, first_difference=first_difference(lead), others=others, causes=counted)


def record(hazard: Hazard, ignored: bool) -> HazardRecord:
    """For the report's list of everything that was found."""
    cause = hazard.cause()
    return HazardRecord(
        cause.kind, cause.file, cause.line, cause.evidence, cause.certain, "double", hazard.fix(), ignored=ignored
    )


def first_difference(hazard: Hazard) -> FirstDifference:
    """Where the first two executions part."""
    event, elements = hazard.first, hazard.elements
    return FirstDifference(
        "double", event.index, hazard.step, event.phase, event.module, event.name, relative_path(event.file),
        event.line, "same" if hazard.what in (found.KERNEL, found.INSIDE) else "different",
        elements.different if elements else None, elements.total if elements else None,
        elements.max_abs if elements else None, elements.max_ulp if elements else None,
    )  # fmt: skip


# --- from the trace --------------------------------------------------------------------------------------
def look(run: Run) -> tuple[list[Hazard], list[str]]:
    """Everything that was found, in the order in which it was; what is only worth a note."""
    hazards: dict[tuple[Any, ...], Hazard] = {}
    changed: dict[tuple[Any, ...], str] = {}
    raced: set[tuple[Any, ...]] = set()
    unseen: dict[str, int] = {}
    roles = sorted(run.traces.traces, key=lambda role: (role != "main", role))
    for trace in (run.traces.traces[role] for role in roles):
        step = 1
        for event in select_events(trace, (f.DOUBLE, f.STEP)):
            if event.kind == f.STEP:
                step += 1
                continue
            said = json.loads(event.text)
            what = said["what"]
            if what == found.UNSEEN:
                unseen[said["how"]] = unseen.get(said["how"], 0) + said["times"]
            elif said["times"] > 1:
                continue
            elif what == found.OUTSIDE:
                changed.setdefault((*memory_of(trace, said), event.file, event.line), outside(trace, event, said))
            else:
                if what == found.RACE:
                    raced.add(memory_of(trace, said))
                add(hazards, trace, event, said, step)
    notes = [note for memory, note in changed.items() if memory[:3] not in raced]
    if len(notes) > MOST_NOTES:
        notes = [*notes[:MOST_NOTES], f"{len(notes) - MOST_NOTES} more places read memory changed outside torch."]
    if unseen:
        parts = ", ".join(f"{how} ({times} calls)" for how, times in sorted(unseen.items()))
        notes.append(f"Not executed twice, so not looked into: {parts}.")
    return list(hazards.values()), notes


def memory_of(trace: Trace, said: dict[str, Any]) -> tuple[Any, ...]:
    """What stands for the memory that a finding is about."""
    return trace.role, said.get("made", 0), said.get("how", "")


def add(hazards: dict[tuple[Any, ...], Hazard], trace: Trace, event: Event, said: dict[str, Any], step: int) -> None:
    """Enter a finding: a hazard of its own, or one more sight of one that is known."""
    what = said["what"]
    elements = None
    if said.get("kept"):
        pair = [trace.path.with_name(f"{said['kept']}.{end}") for end in ("a", "b")]
        elements = compare_kept(pair[0], pair[1], event.line)
        if elements is None and what == found.KERNEL and same_but_nan(pair):
            return
    made, written = (trace.location(said.get(name, 0))[:2] for name in ("made", "written"))
    file, line = event.file, event.line
    if what in (found.UNWRITTEN, found.INSIDE) and made[1]:
        file, line = made
    elif what == found.RACE and (written[1] or made[1]):
        file, line = written if written[1] else made
    kind = KINDS[what]
    certain = not said.get("unsure", False)
    hazard = hazards.setdefault((kind, file, line), Hazard(kind, file, line, event, step, what, elements, certain))
    hazard.certain = hazard.certain or certain
    hazard.evidence += [text for text in evidence(event, said, made, written) if text not in hazard.evidence]


def same_but_nan(pair: Sequence[Path]) -> bool:
    """Two results whose bits differ only inside of NaN count as the same; so do files that are not there."""
    return all(path.exists() for path in pair)


def evidence(event: Event, said: dict[str, Any], made: tuple[str, int], written: tuple[str, int]) -> list[str]:
    """What was seen, in words."""
    what, here = said["what"], f"{event.name} at {shown(event.file, event.line)}"
    if what == found.KERNEL:
        rate = f"{said['different']} of {said['runs'] - 1} further executions gave other bits"
        return [f"{here} was executed again with the same inputs: {rate}"]
    if what == found.INSIDE:
        maker = f"{said['how']} at {shown(*made)}" if made[1] else here
        told = [f"the result of {maker} depends on what memory held that the operator allocated for itself"]
        return [*told, f"{here} computes with it"] if made[1] else told
    if what == found.UNWRITTEN:
        origin = f"memory made by {said['how']} at {shown(*made)}" if made[1] else f"memory made by {said['how']}"
        return [f"{origin} is read before all of it was written", f"the result of {here} depends on what it held"]
    told = [f"an operand of {here} was changed by another thread while the operator was at work"]
    if said.get("unsure"):
        told = [f"an operand of {here} was changed by another thread since it was last read",
                "this thread did not wait for another one in between"]  # fmt: skip
    if said.get("how") == "operator":
        told.append(f"an operator at {shown(*written)} writes to the same tensor" if written[1] else "")
        told.append(f"that thread is {said['thread']}" if said.get("thread") else "")
    else:
        told.append("it was not an operator that wrote: " + ways(said, made, written))
    return [text for text in told if text]


def ways(said: dict[str, Any], made: tuple[str, int], written: tuple[str, int]) -> str:
    """How others got at the memory, as far as it was seen."""
    if said.get("how"):
        return f"the memory was shared by {said['how']} at {shown(*written)}"
    if made[1]:
        return f"the memory was made at {shown(*made)}, and how others got its address was not seen"
    return "where the memory comes from was not seen"


def outside(trace: Trace, event: Event, said: dict[str, Any]) -> str:
    """Memory that a program fills by itself, between operators."""
    made, written = (trace.location(said.get(name, 0))[:2] for name in ("made", "written"))
    return (
        f"{shown(event.file, event.line)} ({event.name}) reads memory that was changed since torch last used it, and"
        f" not by torch: {ways(said, made, written)}. That is in order where your program fills it between batches;"
        " no other thread was seen to write while an operator read."
    )

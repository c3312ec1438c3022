"""Control against control, then everything varied, then one thing at a time; then the cause."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from samerun.base.records import (
    DIFFERENT,
    SAME,
    CheckReport,
    FirstDifference,
    Fix,
    FoundCause,
    Outcome,
    RunRecord,
)
from samerun.check import attribution, resume_search
from samerun.check.interruption import Interruption
from samerun.check.plan import Plan, Variation
from samerun.check.runner import Run, RunFailed, Runner
from samerun.check.situation import Situation
from samerun.record import format as f
from samerun.record.compare import Difference, first_difference

NEEDED_BYTES = 1 << 16
"""With less free space than this a run cannot be recorded, and a program cannot print."""


@dataclass
class Search:
    """One check: its runs so far and what became of each variation."""

    runner: Runner
    plan: Plan
    variations: Sequence[Variation]
    environment: Sequence[Variation]
    """All variations of the surroundings, chosen or not: tried when a rerun alone differs."""
    repeat: int = 2
    saved: bool = False
    interruptions: Sequence[Interruption] = ()
    """For the variation `resume`."""
    runs: list[Run] = field(default_factory=list)
    outcomes: dict[str, Outcome] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    # --- runs ----------------------------------------------------------------------------------------
    def run(self, plan: Plan, name: str, vary: tuple[str, ...] = ()) -> Run:
        run = self.runner.run(plan, name, vary)
        self.runs.append(run)
        return run

    def control(self, among: Sequence[Variation]) -> Plan:
        """The plan with every one of these things pinned."""
        plan = self.plan
        for variation in among:
            plan = variation.apply(plan, False)
        return plan

    def varied(self, among: Sequence[Variation], vary: Sequence[Variation]) -> Plan:
        plan = self.plan
        for variation in among:
            plan = variation.apply(plan, variation in vary)
        return plan

    # --- the search ----------------------------------------------------------------------------------
    def check(self) -> CheckReport:
        """Raises RunFailed when the program does not end well by itself."""
        chosen = [v for v in self.variations if not v.unavailable()]
        for variation in self.variations:
            if variation.unavailable():
                self.settle(variation, "skipped", variation.unavailable())
        varying = [v for v in chosen if v.name not in ("rerun", "resume")]
        resuming = [v for v in chosen if v.name == "resume"]
        for variation in resuming:
            self.plan = variation.apply(self.plan, False)
        first = self.run(self.control(varying), "control-1")
        self.look_at(first)
        must_end_well(first)
        if any(v.name == "rerun" for v in chosen) or not varying + resuming:
            for number in range(2, max(2, self.repeat) + 1):
                again = self.run(self.control(varying), f"control-{number}")
                difference = self.difference(first, again)
                if difference is not None:
                    situation = self.closer(Situation("rerun", first, again, difference))
                    return self.rerun_differs(situation, varying, number)
                self.finished(again)
            self.outcomes["rerun"] = Outcome("rerun", SAME, f"{max(2, self.repeat)} runs of the same command")
        if varying:
            found = self.vary(first, varying)
            if found is not None and found[1] is None:
                return self.rerun_differs(found[0], varying, len(self.runs))
            if found is not None:
                return self.report(DIFFERENT, *found)
        for variation in resuming:
            outcome, detail, parted = resume_search.search(self, first, self.interruptions)
            self.settle(variation, outcome, detail)
            if outcome == DIFFERENT:
                return self.report(DIFFERENT, parted, attribution.of_resume(parted) if parted else None)
        return self.report(SAME)

    def vary(self, first: Run, varying: Sequence[Variation]) -> tuple[Situation, attribution.Found | None] | None:
        """All at once; if that differs, one at a time. Returns the first difference and its cause.

        No cause where the unvaried program turns out to differ by itself, only not every time.
        """
        names = tuple(v.name for v in varying)
        if len(varying) > 1:
            together = self.run(self.varied(varying, varying), "varied-together", names)
            whole = self.difference(first, together)
            if whole is None:
                self.finished(together)
                for variation in varying:
                    self.settle(variation, SAME)
                return None
        found: Situation | None = None
        culprit: Variation | None = None
        for variation in varying:
            run = self.run(self.varied(varying, [variation]), f"varied-{variation.name}", (variation.name,))
            difference = self.difference(first, run)
            self.settle(variation, SAME if difference is None else DIFFERENT, failure_of(run))
            if difference is None:
                self.finished(run)
            elif found is None:
                found, culprit = self.closer(Situation(variation.name, first, run, difference)), variation
        if found is None and len(varying) > 1:
            assert whole is not None
            self.notes.append("No single variation makes the difference: only together do they.")
            found = Situation("+".join(names), first, together, whole)
        if found is None:
            return None
        again = self.run(first.plan, "control-again")
        chance = self.difference(first, again)
        if chance is not None:
            return self.closer(Situation("rerun", first, again, chance)), None
        return found, attribution.of_variation(self, found, culprit)

    def rerun_differs(self, situation: Situation, varying: Sequence[Variation], number: int) -> CheckReport:
        """The report when the same command gives two results."""
        detail = f"{situation.a.name} against {situation.b.name}"
        if number > 2:
            detail += f": the first of {number} runs to differ"
        self.outcomes["rerun"] = Outcome("rerun", DIFFERENT, detail + failure_of(situation.b, "; "))
        for variation in varying:
            self.settle(variation, "skipped", "the program already differs when nothing is varied")
        found = attribution.of_rerun(self, situation, {v.name for v in varying})
        if found is None:  # not the program: surroundings that --vary left alone
            rest = [v for v in self.environment if v not in varying and not v.unavailable()]
            calm = [*varying, *rest]
            base = self.run(self.control(calm), "held-1")
            settled = dict(self.outcomes)
            result = self.vary(base, calm)
            self.outcomes = settled
            if result is not None and result[1] is not None:
                return self.report(DIFFERENT, replace(result[0], variation="rerun"), result[1])
            found = attribution.unexplained(situation)
        return self.report(DIFFERENT, situation, found)

    def difference(self, a: Run, b: Run) -> Difference | None:
        """The first difference of two runs; None when they are the same."""
        self.look_at(b)
        found = first_difference(a.traces, b.traces)
        if found is None and a.exit_code != b.exit_code:
            found = Difference("process", "main", "main", None, None, 0, 0)
        return found

    def finished(self, run: Run) -> None:
        """A run that was found the same is not looked at again."""
        if not self.saved:
            run.discard()

    def closer(self, situation: Situation) -> Situation:
        """Where only steps were recorded so far into the program: both again, with that step's operators."""
        difference, plan = situation.difference, situation.a.plan
        if difference.what != "leaf" or plan.watch.depth != "auto":
            return situation
        window = (difference.step, difference.step)
        a, b = (
            self.run(run.plan.with_watch(depth="ops", window=window), f"{run.name}-step{difference.step}", run.vary)
            for run in (situation.a, situation.b)
        )
        found = self.difference(a, b)
        if found is None or found.what == "leaf":
            return situation
        return Situation(situation.variation, a, b, replace(found, step=max(found.step, difference.step)))

    def look_at(self, run: Run) -> None:
        """Notice what keeps a run from being compared."""
        full = shutil.disk_usage(run.folder).free < NEEDED_BYTES
        if run.traces.failures or (full and run.failed):
            reason = run.traces.failures[0] if run.traces.failures else "no space left on device"
            raise RunFailed(
                f"Run {run.name} could not be recorded in {run.folder.parent}: {reason}.", run,
                hint="Free some space, or put the traces elsewhere with TMPDIR or --save.",
            )  # fmt: skip
        if not run.traces.traces and not run.failed:
            raise RunFailed(
                f"Run {run.name} left no trace: {' '.join(self.plan.shown)} ran, but not under samerun's recorder.",
                run,
                hint="Is samerun installed for the Python that the command starts? (python -I and -S switch it off.)",
            )

    def settle(self, variation: Variation, outcome: str, detail: str = "") -> None:
        text = variation.detail + (f"; {detail}" if detail else "")
        self.outcomes[variation.name] = Outcome(variation.name, outcome, text)

    # --- the report ----------------------------------------------------------------------------------
    def report(
        self, verdict: str, situation: Situation | None = None, found: attribution.Found | None = None
    ) -> CheckReport:
        if verdict == SAME and self.runs and not self.runs[0].operators:
            self.notes.append("No torch operator ran where samerun could see it: only the exit codes were compared.")
        first = place(situation, found) if situation is not None else None
        cause = found.cause if found is not None else None
        return CheckReport(
            verdict=verdict,
            command=self.plan.shown,
            variations=tuple(self.outcomes[v.name] for v in self.variations if v.name in self.outcomes),
            runs=tuple(self.record(run) for run in self.runs),
            first_difference=first,
            cause=relative(cause) if cause else None,
            fix=found.fix if found is not None else None,
            notes=tuple(self.notes),
            others=tuple(relative(other) for other in found.others) if found is not None else (),
        )

    def record(self, run: Run) -> RunRecord:
        return RunRecord(
            run.name, run.vary, run.exit_code, run.steps, run.events, round(run.seconds, 2),
            str(run.folder) if self.saved else None,
        )  # fmt: skip


def must_end_well(run: Run) -> None:
    if run.timed_out:
        raise RunFailed(
            f"The program was still running after {run.seconds:.0f} s and was ended.", run,
            hint="Give it more time (--time-limit), or fewer steps (--max-steps N).",
        )  # fmt: skip
    if run.exit_code != 0:
        how = f"ended with exit code {run.exit_code}" if run.exit_code > 0 else f"was ended by signal {-run.exit_code}"
        raise RunFailed(f"The program {how}, before anything was varied.", run, hint="It must run by itself first.")


def failure_of(run: Run, lead: str = "") -> str:
    """How a varied run failed, if it did."""
    if run.timed_out:
        return f"{lead}this run did not end in time"
    return f"{lead}this run ended with exit code {run.exit_code}" if run.exit_code else ""


def place(situation: Situation, found: attribution.Found | None) -> FirstDifference:
    """The JSON's `first_difference`."""
    difference = situation.difference
    event = difference.event
    if event is None:
        name = "exit code" if situation.a.exit_code != situation.b.exit_code else "process"
        return FirstDifference(situation.variation, 0, 0, "host", "", name, "", 0, "none")
    no_inputs = event.kind != f.OPERATOR or bool(event.flags & f.NO_INPUTS)
    inputs = "none" if no_inputs else "same" if difference.what == "outputs" else "different"
    if difference.what == "scalars" and difference.a and difference.b and difference.a.inputs == difference.b.inputs:
        inputs = "different"
    operator = event.text if event.kind == f.DRAW and event.text else event.name or f.KIND_NAMES[event.kind]
    elements = found.elements if found is not None else None
    return FirstDifference(
        situation.variation, event.index, difference.step, event.phase, event.module, operator,
        relative_path(event.file), event.line, inputs,
        elements.different if elements else None, elements.total if elements else None,
        elements.max_abs if elements else None, elements.max_ulp if elements else None,
    )  # fmt: skip


def relative(cause: FoundCause) -> FoundCause:
    return replace(cause, file=relative_path(cause.file))


def relative_path(path: str) -> str:
    """Relative to the working directory where the file lies below it."""
    if not path:
        return ""
    try:
        shown = os.path.relpath(path)
    except (ValueError, OSError):
        return path
    return path if shown.startswith("..") else shown


__all__ = ["Fix", "Path", "Search"]

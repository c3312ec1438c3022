"""Control against control, then everything varied, then one thing at a time; then the cause."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from samerun.base.records import (
    ALREADY,
    DIFFERENT,
    SAME,
    TROUBLE,
    CheckReport,
    Growth,
    Outcome,
    RunRecord,
    Spread,
)
from samerun.check.attribution import attribution
from samerun.check.evidence.growth import growth
from samerun.check.evidence.situation import Situation
from samerun.check.evidence.spread import spread
from samerun.check.evidence.steady import is_steady
from samerun.check.execution.interruption import Interruption
from samerun.check.execution.runner import Run, RunFailed, Runner
from samerun.check.execution.unrecorded import hint_for, where_traces_are
from samerun.check.plan import Plan, Variation
from samerun.check.search import resume
from samerun.check.search.bisection import bisect_variations, leave_out_failing
from samerun.check.search.places import place, relative
from samerun.check.search.resume_experiments import Experiments
from samerun.check.search.run_status import cut_short, failure_of, must_end_in_time, must_end_well, with_patience
from samerun.check.search.whole import Whole, likeliest
from samerun.record.comparison.compare import Difference, find_first_difference
from samerun.record.config import STARTED_FILE

CHANGING = ("address_layout", "hash_seed", "memory")
"""Variations of what is another in every process, without anybody's doing."""
EXTRA_REPEATS = 2
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
    reruns: int = 0
    """Runs of the unvaried program that were compared with the first one, and how many differed."""
    differing: int = 0
    put_aside: Mapping[str, str] = field(default_factory=dict)
    """Variations that are held and not varied any more, each with the reason."""
    prefix: str = ""
    """Stands before the name of every run."""
    brief: bool = False
    """The values of the first difference are not looked at: a finding behind another only needs its cause."""
    grown: tuple[Growth, ...] = ()
    """How the reported difference grows."""
    answer: tuple[Situation, attribution.Found] | None = None
    """The difference that was reported, and its cause."""

    # --- runs ----------------------------------------------------------------------------------------
    def run(self, plan: Plan, name: str, vary: tuple[str, ...] = (), among_forks: bool = False) -> Run:
        name = self.prefix + name
        taken = sum(run.name == name or run.name.startswith(f"{name}~") for run in self.runs)
        runner = with_patience(self.runner, self.runs[0].seconds, vary) if self.runs else self.runner
        run = runner.run(plan, f"{name}~{taken + 1}" if taken else name, vary, among_forks)
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
        chosen = [v for v in self.variations if self.possible(v)]
        held = [v for v in chosen if v.name not in ("rerun", "resume")]
        resuming = [v for v in chosen if v.name == "resume"]
        for variation in resuming:
            self.plan = variation.apply(self.plan, False)
        first = self.run(self.control(held), "control-1")
        self.look_at(first)
        must_end_well(first)
        varying = [v for v in held if self.worthwhile(v, first)]
        whole: Whole | None = None
        if any(v.name == "rerun" for v in chosen) or not (held or resuming):
            plain = [v for v in varying if not self.scoped(v)]
            by_address = not any(v.cause == "object-id" for v in plain)  # else they are varied on purpose
            if plain and self.repeat == 2 and is_steady(first.traces, by_address):
                # A run with everything varied is a rerun as well: the same result settles both.
                whole, plain = leave_out_failing(self, first, held, self.together(first, held, plain))
            if whole is not None and whole.difference is None:
                self.outcomes["rerun"] = Outcome("rerun", SAME, "the run with everything varied gave the same")
            else:
                differs = self.repeats(first, self.control(held), alone=not plain)
                if differs is not None:
                    return self.rerun_differs(differs, held)
        if varying:
            found = self.vary(first, held, varying, whole)
            if found is not None and found[1] is None:
                return self.rerun_differs(found[0], held)
            if found is not None:
                return self.report(DIFFERENT, *found)
        for variation in resuming:
            searched = resume.search(self, first, self.interruptions)
            if searched.situation is not None and "rerun" not in self.outcomes:
                chance = self.by_chance(first)  # a program that differs by itself says nothing of its checkpoints
                if chance is not None:
                    return self.rerun_differs(chance, [*held, variation])
            self.settle(variation, searched.outcome, searched.detail)
            if searched.situation is not None and searched.resumed is not None:
                cause = Experiments(self, searched.situation, searched.resumed).cause()
                return self.report(DIFFERENT, searched.situation, cause)
        return self.report(SAME)

    def possible(self, variation: Variation) -> bool:
        """Can it be varied here? Where not, the report says why."""
        reason = variation.unavailable(self.plan)
        if reason:
            self.settle(variation, "skipped", reason)
        return not reason

    def worthwhile(self, variation: Variation, first: Run) -> bool:
        """Can a program that ran like this depend on it? Where not, the report says why."""
        reason = self.put_aside.get(variation.name) or variation.pointless(first.traces)
        if reason:
            self.settle(variation, "skipped", reason)
        return not reason

    def scoped(self, variation: Variation) -> bool:
        """Is less compared under this variation? It is then varied by itself, so that it hides nothing."""
        return variation.apply(self.plan, True).scope != self.plan.scope

    def repeats(self, first: Run, plan: Plan, alone: bool) -> Situation | None:
        """The same again, `repeat` runs in all: the first difference, None when all are the same.

        Where two runs were asked for, the first difference settles it; when nothing else will be varied
        (`alone`), a program that may differ only now and then gets two more. Where more than two were asked
        for, all are made, so that the report can say how often the program differs.
        """
        situation: Situation | None = None
        most = max(2, self.repeat)
        if alone and self.repeat == 2 and not is_steady(first.traces):
            most += EXTRA_REPEATS
        for number in range(2, most + 1):
            again = self.run(plan, f"control-{number}")
            difference = self.difference(first, again)
            if cut_short(again, difference):
                must_end_in_time(again)
            self.reruns += 1
            if difference is None:
                self.finished(again)
            else:
                self.differing += 1
                if situation is None:
                    situation = Situation("rerun", first, again, difference)
                if self.repeat == 2:
                    break
        if situation is None:
            self.outcomes["rerun"] = Outcome("rerun", SAME, f"{most} runs of the same command")
            return None
        return self.closer(situation)

    def together(self, first: Run, held: Sequence[Variation], group: Sequence[Variation]) -> Whole:
        """Vary some things in one run, the others being held."""
        names = tuple(v.name for v in group)
        name = f"varied-{names[0]}" if len(names) == 1 else "varied-together"
        run = self.run(self.varied(held, group), name, names)
        return Whole(tuple(group), run, self.difference(first, run))

    def vary(
        self, first: Run, held: Sequence[Variation], varying: Sequence[Variation], whole: Whole | None = None
    ) -> tuple[Situation, attribution.Found | None] | None:
        """All at once; if that differs, in halves. Returns the first difference and its cause.

        No cause where the unvaried program turns out to differ by itself, only not every time.
        """
        plain = [v for v in varying if not self.scoped(v)]
        singles: list[Whole] = []
        scoped = [v for v in varying if v not in plain]
        if whole is not None:  # what could not be varied was left out already
            plain = list(whole.group)
        elif plain:
            whole, plain = leave_out_failing(self, first, held, self.together(first, held, plain))
        if whole is not None:
            singles = bisect_variations(self, first, held, whole)
        for variation in scoped:
            singles += bisect_variations(self, first, held, self.together(first, held, [variation]))
        found: Situation | None = None
        culprit: Variation | None = None
        if singles:
            hit = likeliest(singles)
            culprit = hit.group[0]
            assert hit.difference is not None
            found = self.closer(Situation(culprit.name, first, hit.run, hit.difference))
        elif whole is not None and whole.difference is not None:
            well = [v for v in plain if self.outcomes[v.name].outcome != TROUBLE]
            if len(well) < len(plain):  # a run that cannot be varied in one thing: all the others at once
                whole = self.together(first, held, well) if well else None
            if whole is not None and whole.difference is not None and not cut_short(whole.run, whole.difference):
                self.notes.append("No single variation makes the difference: only together do they.")
                names = "+".join(v.name for v in whole.group)
                found = Situation(names, first, whole.run, whole.difference)
        if found is None:
            return None
        chance = self.by_chance(first)
        if chance is not None:
            return chance, None
        return found, replace(attribution.of_variation(self, found, culprit), variation=found.variation)

    def by_chance(self, first: Run) -> Situation | None:
        """Does the control differ by itself, only not every time?"""
        again = self.run(first.plan, "control-again")
        difference = self.difference(first, again)
        if cut_short(again, difference):
            must_end_in_time(again)
        self.reruns += 1
        if difference is None:
            return None
        self.differing += 1
        return self.closer(Situation("rerun", first, again, difference))

    def rerun_differs(self, situation: Situation, varying: Sequence[Variation]) -> CheckReport:
        """The report when the same command gives two results."""
        detail = f"{situation.a.name} against {situation.b.name}"
        if self.reruns > 1:
            detail += f"; differed in {self.differing} of {self.reruns} repeats"
        self.outcomes["rerun"] = Outcome("rerun", DIFFERENT, detail + failure_of(situation.b, "; "))
        for variation in varying:
            self.settle(variation, "skipped", ALREADY)
        found = attribution.of_rerun(self, situation, {v.name for v in varying})
        if found is None:  # not the program itself: surroundings that change by themselves, not held so far
            hidden = self.by_itself(situation, varying)
            if hidden is not None:
                return self.report(DIFFERENT, *hidden)
            plan = situation.a.plan
            found = attribution.by_lines(self, situation, attribution.values(self, situation, plan, plan))
        return self.report(DIFFERENT, situation, found)

    def by_itself(
        self, situation: Situation, varying: Sequence[Variation]
    ) -> tuple[Situation, attribution.Found] | None:
        """Which of the surroundings that are other ones in every process makes the difference, if one does.

        Addresses come first, even where they were held so far: another hash seed moves objects as well.
        """
        named = {v.name: v for v in self.environment if not v.unavailable(self.plan)}
        rest = [named[n] for n in CHANGING if n in named and (n == CHANGING[0] or named[n] not in varying)]
        held = list(dict.fromkeys([*varying, *rest]))
        if len(held) == len(varying):
            return None
        base = self.run(self.control(held), "held-1")
        if self.difference(base, self.run(base.plan, "held-2")) is not None:
            return None
        # Addresses are other ones in every run, but not always in another order: they get more tries.
        for variation in [v for v in rest for _ in range(3 if v.name == CHANGING[0] else 1)]:
            whole = self.together(base, held, [variation])
            if whole.difference is not None:
                varied = self.closer(Situation(variation.name, base, whole.run, whole.difference))
                found = attribution.of_variation(self, varied, variation)
                return replace(varied, variation="rerun"), replace(found, variation=variation.name)
        return None

    def difference(self, a: Run, b: Run) -> Difference | None:
        """The first difference of two runs; None when they are the same."""
        self.look_at(b)
        found = find_first_difference(a.traces, b.traces, (*a.plan.scope, *b.plan.scope))
        if found is None and a.exit_code != b.exit_code:
            found = Difference("process", "main", "main", None, None, 0, 0)
        return found

    def keep_growth(self, steps: tuple[int, ...], a: Run, b: Run) -> None:
        """Compare what two more runs of a difference kept after some steps."""
        self.grown = growth(a.folder, b.folder, steps)
        if steps and not self.grown:
            self.notes.append(
                "How the difference grows is not known: it did not come back where it was to be measured."
            )

    def finished(self, run: Run) -> None:
        """A run that was found the same is not looked at again."""
        if not self.saved:
            run.discard()

    def closer(self, situation: Situation) -> Situation:
        """Where only steps were recorded so far into the program, or at all: both again, with that step's operators."""
        difference, plan = situation.difference, situation.a.plan
        if difference.what != "leaf" or plan.watch.depth == "ops":
            return situation
        window = (difference.step, difference.step)
        a, b = (
            self.run(
                run.plan.with_watch(depth="ops", operator_window=window), f"{run.name}-step{difference.step}", run.vary
            )
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
            reason = run.traces.failures[0] if run.traces.failures else os.strerror(errno.ENOSPC)
            where = where_traces_are(reason, run.folder.parent)
            raise RunFailed(f"Run {run.name} could not be recorded{where}: {reason}.", run, hint=hint_for(reason))
        if not run.traces.traces and not run.failed:
            if (run.folder / STARTED_FILE).exists():
                raise RunFailed(
                    f"Run {run.name} left nothing to compare: {' '.join(self.plan.shown)} ended without computing"
                    " anything with torch.",
                    run,
                    hint="Does it need arguments, or a guard such as `if __name__ == \"__main__\"` to be true?",
                )
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
        rerun = self.outcomes.get("rerun")
        why = ALREADY if rerun is not None and rerun.outcome == DIFFERENT else "another variation differs already"
        for variation in self.variations if verdict == DIFFERENT else ():
            if variation.name not in self.outcomes:  # what comes after the first difference
                self.settle(variation, "skipped", why)
        first = place(situation, found) if situation is not None else None
        cause = found.cause if found is not None else None
        skipped = self.runs[0].skipped if self.runs else ()
        if situation is not None and found is not None:
            self.answer = situation, found
        return CheckReport(
            verdict=verdict,
            command=self.plan.shown,
            variations=tuple(self.outcomes[v.name] for v in self.variations if v.name in self.outcomes),
            runs=tuple(self.record(run) for run in self.runs),
            first_difference=first,
            cause=relative(cause) if cause else None,
            fix=found.fix if found is not None else None,
            notes=(*self.notes, *skipped, *filter(None, [self.runner.load.note])),
            others=tuple(relative(other) for other in found.others) if found is not None else (),
            spread=self.spread(situation) if situation is not None else None,
        )

    def spread(self, situation: Situation) -> Spread | None:
        shift = situation.parting.shift if situation.parting is not None else 0
        found = spread(situation.a, situation.b, shift)
        return replace(found, growth=self.grown) if found is not None else None

    def record(self, run: Run) -> RunRecord:
        return RunRecord(
            run.name, run.vary, run.exit_code, run.steps, run.events, round(run.seconds, 2),
            str(run.folder) if self.saved else None,
        )  # fmt: skip

"""When a cause is certain: the experiments that chance and timing cannot explain.

Three things must be seen, in this order (decision 50). With the suspect's source pinned, the difference disappears.
Without the pin it returns: whatever else may have changed in the meantime (a file that the first run left, a busy
machine) did not remove it. And if the source can be pinned at other values, the results follow those values: a source
that the program reads but does not depend on may still shift the moment at which its threads meet.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Protocol

from samerun.check.attribution import native_entropy
from samerun.check.evidence.situation import Situation, Suspect
from samerun.check.evidence.trace_signs import has_no_sign_of_race
from samerun.check.execution.runner import Run
from samerun.check.plan import RunPlan
from samerun.check.variations.memory import (
    setarch_command_disabling_aslr,
    stop_varying_malloc_memory,
    vary_or_zero_fresh_memory,
)
from samerun.record import pins
from samerun.record.comparison.compare import Difference, find_first_difference
from samerun.record.comparison.results import is_child_but_no_loader_worker
from samerun.record.comparison.streams import ONLY_MAIN_THREAD

KINDS_THAT_MAY_AGREE = ("thread-race", "async-order", "nondeterministic-operator", "object-id", "uninitialised-memory")
"""Kinds that need not show in every run: more pinned runs are needed before they count as confirmed."""
TRIALS_WITH_RACE = 5
"""So many pinned runs have to equal the first one where threads or ranks were seen to race: half of them may anyway."""
TRIALS_IF_PRINTED = 4
"""The same where only printed lines differ: a rounded number, or one that says what was used, may agree by chance."""
TRIALS_IF_LATER = 3
"""So many pinned runs have to equal the first one up to the difference, if they differ from it further behind."""
LATER_RUNS = 3
"""So many more runs have to equal the second one before a file that the first run left is taken for the cause."""
MOST_EXPERIMENTS = 5
"""So many suspects, or lines of one source, are tested."""
MOST_TRIALS = 20
ERROR_PROBABILITY = 0.05
"""Accepted probability that a rare difference merely happened not to show in the pinned runs."""
OTHER_PIN_VALUES = 4
"""How many other values are tried: a result that depends on one comparison has few outcomes."""
PINS_WITH_VALUES = (
    pins.PYTHON, pins.PYTHON_GENERATOR, pins.NUMPY_GLOBAL, pins.NUMPY_GENERATOR, pins.TORCH, pins.TORCH_GENERATOR,
    pins.ENTROPY, pins.NATIVE_ENTROPY, pins.CLOCK, pins.MACHINE,
)  # fmt: skip
"""Pins that can hold a source at different values."""
READINGS: dict[tuple[str, ...], float] = {(pins.CLOCK,): 5.0, (pins.ENTROPY,): 2.8, (pins.MACHINE,): 2.8}
"""Sources that a program may read at many lines, and the rank from which a suspect is a mere reading."""


class ExperimentRunner(Protocol):
    """The part of `Search` that experiments use: runs and comparisons."""

    def run_and_record(self, plan: RunPlan, name: str, labels: tuple[str, ...] = ()) -> Run: ...
    def run_each(self, plan: RunPlan, names: Sequence[str], labels: tuple[str, ...] = ()) -> Iterator[Run]: ...
    def compare_runs(self, a: Run, b: Run) -> Difference | None: ...
    def compare_runs_ignoring_order(self, a: Run, b: Run) -> Difference | None: ...

    @property
    def reruns(self) -> int: ...
    @property
    def differing_rerun_count(self) -> int: ...


def confirm_by_experiment(
    search: ExperimentRunner,
    situation: Situation,
    plan: RunPlan,
    suspect: Suspect,
    run_name_prefix: str,
    pin_names: tuple[str, ...],
) -> bool:
    """Whether the difference disappears (or moves later) with these pins, returns without, and follows their values."""
    return Experiment(search, situation, plan, suspect, run_name_prefix, pin_names).run_and_confirm()


class Experiment:
    """One suspect's source pinned, unpinned and pinned at other values."""

    def __init__(
        self, search: ExperimentRunner, situation: Situation, plan: RunPlan, suspect: Suspect, run_name: str,
        pin_names: tuple[str, ...],
    ) -> None:  # fmt: skip
        self.search, self.situation, self.plan, self.suspect = search, situation, plan, suspect
        self.name, self.names = run_name, pin_names
        self.pinned_plan = add_pins_and_settings_they_need(plan, suspect, pin_names)
        if pins.THREAD_STREAMS in pin_names and differs_in_main_thread(situation):
            # A thread that reads the weights while they are trained differs whatever generator it draws from.
            self.pinned_plan = self.pinned_plan.with_comparison_limits(ONLY_MAIN_THREAD)
        # Results taken in order leave it to chance which worker of a pool computes what: only results are the same.
        has_workers = any(map(is_child_but_no_loader_worker, situation.a.traces.traces))
        by_results = pins.IN_ORDER in pin_names and has_workers
        self.compare = search.compare_runs_ignoring_order if by_results else search.compare_runs
        self.label = (f"pin:{suspect.kind}",)
        self.trials = compute_required_pinned_reruns(search, suspect, has_no_sign_of_race(situation.a.traces))
        if situation.difference.what == "printed":
            self.trials = max(self.trials, TRIALS_IF_PRINTED)
        self.first: Run | None = None
        self.later: Difference | None = None
        """With the source pinned: a difference that comes later than the one at hand."""

    def run_and_confirm(self) -> bool:
        """Whether the difference disappears when pinned, returns without, and follows the values of the pins."""
        # In this order: the first test costs least and refutes most suspects; the other two only guard against chance.
        return self.rerun_pinned_and_check_it_disappears() and self.confirm_returns_unpinned_and_follows_pins()

    def confirm_returns_unpinned_and_follows_pins(self) -> bool:
        """Whether a difference that is gone with the source pinned returns without, and follows the pins' values."""
        return self.rerun_unpinned_and_check_it_returns() and self.rerun_and_check_results_follow_pins()

    def run(self, plan: RunPlan, name_suffix: str) -> Run:
        return self.search.run_and_record(plan, f"{self.name}{name_suffix}", self.label)

    def run_each(self, plan: RunPlan, name_suffixes: Sequence[str]) -> Iterator[Run]:
        return self.search.run_each(plan, [f"{self.name}{suffix}" for suffix in name_suffixes], self.label)

    def rerun_pinned_and_check_it_disappears(self) -> bool:
        """Whether several pinned runs are the same up to where the difference was."""
        runs = self.run_each(self.pinned_plan, [chr(ord("a") + number) for number in range(self.trials + 1)])
        first = self.first = next(runs)
        if first.exit_code != self.situation.a.exit_code:
            return False
        for again in runs:
            found = self.compare(first, again)
            if found is None:
                continue
            if not comes_later_in_same_thread(found, self.situation.difference):
                return False
            if self.trials >= TRIALS_WITH_RACE and is_at_same_operator(found, self.situation.difference):
                return False  # the same race, lost a few steps later
            self.later = found
            if not runs_may_agree_by_chance(self.suspect):
                break
        return True

    def rerun_unpinned_and_check_it_returns(self) -> bool:
        """Whether the unpinned program, run again after the pinned runs, still differs where it did."""
        unpinned: list[Run | None] = [self.situation.b]
        if pins.FOLDER in self.names:  # a file that the first run left is there for every later one
            unpinned = [self.first]
        for number in range(self.trials + 1):
            again = self.run(self.plan, f"-free{number + 1}")
            if any(self._differ_before_pinned_runs_differ(earlier, again) for earlier in unpinned):
                return self._stays_away_in_more_runs_if_needed(number)
            unpinned.append(again)
        return False

    def _stays_away_in_more_runs_if_needed(self, agreeing_unpinned_runs: int) -> bool:
        """Whether more pinned runs are the same too, where unpinned runs were seen to agree by chance, or pinned ones
        differ at a later place: which place comes first may be chance.

        Ranks and threads that race give one of few results: a suspect that only shifts the moment at which they meet
        would otherwise be confirmed by two runs that happen to be alike.
        """
        if self.first is None or not (agreeing_unpinned_runs or self.later):
            return True
        needed = (
            count_reruns_to_rule_out_chance(1 / (agreeing_unpinned_runs + 1))
            if agreeing_unpinned_runs
            else TRIALS_IF_LATER
        )
        longer = self.run_each(self.pinned_plan, [f"-longer{number + 1}" for number in range(needed - self.trials)])
        return not any(self._differ_before_pinned_runs_differ(self.first, run) for run in longer)

    def rerun_and_check_results_follow_pins(self) -> bool:
        """Whether the results change when the source is pinned at another value."""
        kinds = {name.partition("@")[0] for name in self.names}
        if pins.MEMORY in kinds:
            line = "memory", self.suspect.file, self.suspect.line
            other = vary_or_zero_fresh_memory(self.pinned_plan, True).with_watch(varied_line=line)
            # With malloc's memory varied too, any line would seem to be the one if a library reads its own.
            other = other if self.suspect.inside_operator else stop_varying_malloc_memory(other)
            return self._differ_before_pinned_runs_differ(self.first, self.run(other, "-other"))
        if not kinds <= set(PINS_WITH_VALUES):
            return True
        for value in range(1, OTHER_PIN_VALUES + 1):
            other = add_pins_and_settings_they_need(self.plan.with_watch(pin_variant=value), self.suspect, self.names)
            run = self.run(other, f"-other{value}")
            if self._differ_before_pinned_runs_differ(self.first, run):
                return self.trials < TRIALS_WITH_RACE or self._rerun_and_check_all_match(run, f"-other{value}")
        return False

    def _rerun_and_check_all_match(self, run: Run, name_suffix: str) -> bool:
        """Whether runs with the source pinned at that value give the same: a race that is lost seldom does not."""
        runs = (self.run(run.plan, f"{name_suffix}-again") for _ in range(TRIALS_IF_LATER))
        return not any(self._differ_before_pinned_runs_differ(run, again) for again in runs)

    def _differ_before_pinned_runs_differ(self, a: Run | None, b: Run) -> bool:
        """Whether two runs differ before anything that differs even with the source pinned."""
        found = self.compare(a, b) if a is not None else None
        return found is not None and (
            self.later is None or not comes_later_in_same_thread(found, self.situation.difference)
        )


def rerun_and_check_later_runs_agree(search: ExperimentRunner, situation: Situation) -> bool:
    """Whether the program, run again as it is, gives what the second run gave: only the first run is another one.

    A file of the first run that lies where no experiment can take it away is then why, as far as can be told.
    """
    runs = search.run_each(situation.a.plan, [f"later-{number + 1}" for number in range(LATER_RUNS)])
    return all(search.compare_runs(situation.b, run) is None for run in runs)


def find_suspect_lines_that_differ_when_varied_alone(
    search: ExperimentRunner,
    situation: Situation,
    varied_plan: RunPlan,
    suspects: Sequence[Suspect],
    varied_source_name: str,
) -> list[Suspect]:
    """The suspects whose line makes a difference when only it is varied, in the order given."""
    hits = []
    for number, suspect in enumerate(suspects, 1):
        plan = varied_plan.with_watch(varied_line=(varied_source_name, suspect.file, suspect.line))
        run = search.run_and_record(plan, f"only-{number}", (varied_source_name,))
        if search.compare_runs(situation.a, run) is not None:
            hits.append(suspect)
    return hits


def comes_later_in_same_thread(difference: Difference, reference: Difference) -> bool:
    """Whether a difference lies behind another one in the same thread."""
    return (difference.role, difference.thread) == (reference.role, reference.thread) and (
        difference.ordinal > reference.ordinal > 0
    )


def differs_in_main_thread(situation: Situation) -> bool:
    """Whether the runs differ in the main thread of a process too, wherever they differ first."""
    scope = (*situation.a.plan.scope, *situation.b.plan.scope, ONLY_MAIN_THREAD)
    return find_first_difference(situation.a.traces, situation.b.traces, scope) is not None


def is_at_same_operator(difference: Difference, reference: Difference) -> bool:
    """Whether two differences are at one operator of one line, perhaps in other steps."""
    one, other = difference.event, reference.event
    if one is None or other is None:
        return False
    return (one.name, one.file, one.line) == (other.name, other.file, other.line)


def add_pins_and_settings_they_need(plan: RunPlan, suspect: Suspect, pin_names: tuple[str, ...]) -> RunPlan:
    """The plan with a suspect's source pinned."""
    pinned = plan.with_added_pins(*pin_names)
    if pins.THREADS in pin_names:
        pinned = pinned.with_environment(OMP_NUM_THREADS="1", MKL_NUM_THREADS="1")
    if any(name.partition("@")[0] == pins.CLOCK for name in pin_names):
        pinned = pinned.with_watch(clock_tick=suspect.tick or pins.CLOCK_TICK_SECONDS)
    if pins.NATIVE_ENTROPY in pin_names:
        pinned = native_entropy.write_stream_and_pin_native_draws_if_possible(pinned)
    if pins.MEMORY in pin_names:
        pinned = vary_or_zero_fresh_memory(pinned, False)
    if pins.FOLDER in pin_names:
        # Each run then has another path of the home directory: what depends on that differs in the pinned runs too.
        in_home = any(map(os.path.isabs, suspect.without))
        pinned = replace(pinned, copied=not in_home, without=suspect.without)
    if pins.ADDRESSES in pin_names:
        pinned = replace(pinned, prefix=(*pinned.prefix, *setarch_command_disabling_aslr()))
        pinned = pinned.with_environment(PYTHONHASHSEED="1")  # it moves objects too
    return pinned


def compute_required_pinned_reruns(search: ExperimentRunner, suspect: Suspect, no_race_sign: bool = True) -> int:
    """How many pinned runs have to equal the first one, given how often the program differs by itself.

    A program with threads or processes of its own may differ now and then whatever the suspect is.
    """
    least = 1 if no_race_sign else TRIALS_WITH_RACE
    least = max(least, 3) if runs_may_agree_by_chance(suspect) else least
    if not search.reruns or search.differing_rerun_count >= search.reruns:
        return least
    rate = max(search.differing_rerun_count, 1) / search.reruns
    return max(least, count_reruns_to_rule_out_chance(rate))


def count_reruns_that_must_agree(search: ExperimentRunner, base: Run) -> int:
    """How many reruns of a run must equal it before a difference under a variation is that variation's.

    Threads or processes that race give one of few results. With a single rerun that happened to agree, a race was
    called an address or memory that nothing wrote, and certain.
    """
    least = 1 if has_no_sign_of_race(base.traces, treat_id_as_sign=False) else TRIALS_WITH_RACE
    if 0 < search.differing_rerun_count < search.reruns:
        return max(least, count_reruns_to_rule_out_chance(search.differing_rerun_count / search.reruns))
    return least


def rerun_and_check_agreement(
    search: ExperimentRunner, base: Run, compare: Callable[[Run, Run], Difference | None]
) -> bool:
    """Whether the plan of a run gives the same again, so often that it is not by chance."""
    again = search.run_each(base.plan, [f"held-{n + 2}" for n in range(count_reruns_that_must_agree(search, base))])
    return all(compare(base, run) is None for run in again)


def count_reruns_to_rule_out_chance(differing_rate: float) -> int:
    """How many runs in a row chance makes the same no more often than is accepted, if two differ at this rate."""
    return min(MOST_TRIALS, math.ceil(math.log(ERROR_PROBABILITY) / math.log(1 - differing_rate)))


def runs_may_agree_by_chance(suspect: Suspect) -> bool:
    """Whether two runs may agree although the source was not the cause.

    A decision made by comparing two clock readings has few outcomes, so that two runs easily agree.
    """
    if pins.NATIVE_ENTROPY in suspect.pins:  # the last suspect left: an unwatched race may look the same
        return True
    return suspect.kind in KINDS_THAT_MAY_AGREE or (
        is_mere_clock_or_entropy_reading(suspect) and pins.CLOCK in suspect.pins
    )


def is_race_elsewhere_held_by_same_pin(suspect: Suspect, other: Suspect) -> bool:
    """Whether both are races of threads at different lines: run one after the other, neither shows (decision 58)."""
    race = suspect.kind == other.kind == "thread-race" and suspect.pins == other.pins == (pins.SERIAL,)
    return race and (suspect.file, suspect.line) != (other.file, other.line)


def is_mere_clock_or_entropy_reading(suspect: Suspect) -> bool:
    """Whether the only evidence is that a clock or the system's entropy was read, not that the value was used."""
    return suspect.rank >= READINGS.get(suspect.pins, math.inf)


def limit_pins_to_line(suspect: Suspect) -> tuple[str, ...]:
    """The suspect's pins, limited to its line where they can be: with the whole source pinned, the difference would go
    whichever line reads it, one of a library's among them."""
    return tuple(f"{pin}@{suspect.file}:{suspect.line}" if pin in pins.SEPARABLE else pin for pin in suspect.pins)

"""Which of the variables or seeds that differ the results depend on: each is held still, alone.

The first variable that differs may be innocent (the name of a run, a text for a log), and a later one of the same
source may be the cause. So a variable is held, and if the difference stays, the next one is held as well: what is made
of a held variable no longer differs, so that each one comes from elsewhere. See decision 58.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from samerun.check.attribution.confirmation import comes_later_in_same_thread
from samerun.check.evidence.clock_uses import variable_may_affect_results
from samerun.check.evidence.line_search import (
    DifferingVariable,
    find_first_differing_variable,
    find_origin_outside_statement,
    find_write_of_differing_file_read,
    list_names_read,
    read_statement_source_or_empty,
)
from samerun.check.evidence.situation import Situation, Suspect
from samerun.check.evidence.trace_signs import list_user_files
from samerun.check.execution.runner import Run
from samerun.check.plan import RunPlan
from samerun.record import pins
from samerun.record.comparison.compare import Difference
from samerun.record.config import HeldEnvironment, HeldVariables
from samerun.record.watching.held_variables import NOT_HELD

MOST_VARIABLES = 6
"""So many variables are held at most, two runs each."""
TRIALS_BY_CHANCE = 4
"""How many runs with the variable held must be the same, where those without would be by chance."""
MOST_SEEDS = 4
"""So many lines that seed, or that read the environment, are tested."""
MAKE_SEEDS = frozenset(("hash", "id"))
"""Functions whose results differ between processes."""
Variable = tuple[str, int, str]


class VariableRunner(Protocol):
    """The part of `Search` that these experiments use."""

    def run_and_record(self, plan: RunPlan, name: str, labels: tuple[str, ...] = ()) -> Run: ...
    def compare_runs(self, a: Run, b: Run) -> Difference | None: ...


@dataclass(frozen=True)
class DecisiveVariable:
    """The variable that makes the difference, as far as is known.

    `certain`: holding it alone removes the difference, and none before it could be the cause. `rivals`: others that
    may be the cause.
    """

    variable: DifferingVariable
    certain: bool
    evidence: tuple[str, ...]
    rivals: tuple[DifferingVariable, ...] = ()


@dataclass
class VariableExperiments:
    """Two plans whose runs differ. `by_chance`: some runs of the second agree with those of the first."""

    search: VariableRunner
    situation: Situation
    plans: tuple[RunPlan, RunPlan]
    by_chance: bool = False
    innocent: list[DifferingVariable] = field(default_factory=list)
    """Held in vain: the difference stayed."""
    unheld: list[DifferingVariable] = field(default_factory=list)
    """They could not be held, and may be the cause."""
    pairs: int = 0
    """How many pairs of runs were made."""

    def rerun_and_find_decisive_variable(self, line_traced_runs: tuple[Run, Run]) -> DecisiveVariable | None:
        """`line_traced_runs`: of both plans, with their lines followed.

        None if no variable that differs makes the difference.
        """
        held: list[Variable] = []
        role = self.situation.difference.role
        for _ in range(MOST_VARIABLES):
            passed_over = (*self.innocent, *(replace(v, line=0) for v in self.unheld))
            found = find_first_differing_variable(*line_traced_runs, passed_over, role)
            if found is None:
                break
            if self._is_computed_where_difference_shows(found):
                if self.unheld:
                    break
                return self._make_decisive_variable(found, "the first operator that differs is on this line")
            pair, holders = self._run_holding_variables_of_line(held, found.holders)
            if pair is None:
                if variable_may_affect_results(
                    list_user_files(line_traced_runs[0].traces), found.file, found.line, found.variable
                ):
                    self.unheld.append(found)
                else:
                    self.innocent.append(found)
            elif self._disappears_also_in_reruns(pair):
                decisive = self._make_decisive_variable(found, "", pair, holders)
                return move_to_file_writing_line_if_any(
                    decisive, find_write_of_differing_file_read(*line_traced_runs, found.index, role)
                )
            else:
                self.innocent.append(found)
                held, line_traced_runs = [*held, *holders], pair
        return self._make_decisive_variable(self.unheld[0]) if self.unheld else None

    def _run_holding_variables_of_line(
        self, held_before: Sequence[Variable], variables_of_line: Sequence[Variable]
    ) -> tuple[tuple[Run, Run] | None, Sequence[Variable]]:
        """Runs with all that differs from a line on held, or the first of it if all cannot be; and what was held.

        It is the line that matters: the loop variable of a comprehension, for one, is used up before it can be held.
        """
        for some in (
            dict.fromkeys((tuple(variables_of_line), tuple(variables_of_line[:1]))) if variables_of_line else ()
        ):
            self.pairs += 1
            pair = self._run_saving_then_holding([*held_before, *some], self.pairs)
            if pair is not None:
                return pair, some
        return None, ()

    def _run_saving_then_holding(
        self, program_variables: Sequence[Variable], experiment_number: int
    ) -> tuple[Run, Run] | None:
        """The first plan with these variables saved and the second with them held; None if they could not be."""
        folder = self.situation.a.folder.parent / f"held-variables-{experiment_number}"
        folder.mkdir(exist_ok=True)
        a, b = (
            plan.with_watch(trace_lines=True, held_variables=HeldVariables(str(folder), keep, tuple(program_variables)))
            for plan, keep in zip(self.plans, (True, False), strict=True)
        )
        saved = self.search.run_and_record(a, f"variable-{experiment_number}a", ("variable",))
        held = self.search.run_and_record(b, f"variable-{experiment_number}b", ("variable",))
        is_held = held.exit_code == saved.exit_code and not (folder / NOT_HELD).exists()
        return (saved, held) if is_held else None

    def _disappears_also_in_reruns(self, saved_and_held_run: tuple[Run, Run]) -> bool:
        """Whether runs with some variables held are the same up to where the difference was."""
        if self._still_differs_no_later(saved_and_held_run):
            return False
        for _ in range(TRIALS_BY_CHANCE - 1 if self.by_chance else 0):
            again = self.search.run_and_record(saved_and_held_run[1].plan, "variable-again", ("variable",))
            if self._still_differs_no_later((saved_and_held_run[0], again)):
                return False
        return True

    def _still_differs_no_later(self, saved_and_held_run: tuple[Run, Run]) -> bool:
        return differs_no_later_than_situation(self.search.compare_runs(*saved_and_held_run), self.situation)

    def _is_computed_where_difference_shows(self, variable: DifferingVariable) -> bool:
        """Whether a variable differs from the line of the first operator that differs: they differ for one reason."""
        event = self.situation.difference.event
        return event is not None and (event.file, event.line) == (variable.file, variable.line)

    def _make_decisive_variable(
        self,
        variable: DifferingVariable,
        why: str = "",
        saved_and_held_run: tuple[Run, Run] | None = None,
        held_variables: Sequence[Variable] = (),
    ) -> DecisiveVariable:
        evidence = [variable.first_difference_sentence]
        if why:
            evidence.append(why)
        if saved_and_held_run is not None:
            whose = "its" if len(held_variables) == 1 else "their"
            listed = " and ".join(f"`{name}`" for _, _, name in held_variables)
            evidence.append(f"with {listed} held at {whose} values in the other run, the difference goes")
            if self.innocent and not self._rerun_and_check_suffices_alone(saved_and_held_run, held_variables):
                evidence[-1] += ", once the variables before it are held as well"
                return DecisiveVariable(variable, False, tuple(evidence), (*self.unheld, *self.innocent))
        evidence += [
            f"`{other.variable}` differs before it, from line {other.line} on, but the difference does not come from it"
            for other in self.innocent
            if (other.file, other.line) != (variable.file, variable.line)
        ]
        rivals = tuple(other for other in self.unheld if other != variable)
        evidence += [
            f"`{other.variable}` differs as well, from line {other.line} on, and could not be held" for other in rivals
        ]
        certain = not self.unheld and bool(why or held_variables)
        return DecisiveVariable(variable, certain, tuple(evidence), rivals)

    def _rerun_and_check_suffices_alone(
        self, saved_and_held_run: tuple[Run, Run], variables: Sequence[Variable]
    ) -> bool:
        """Whether the difference goes as well if, of the variables that were held, only these are."""
        watch = saved_and_held_run[1].plan.watch.held_variables
        assert watch is not None
        plan = saved_and_held_run[1].plan.with_watch(held_variables=replace(watch, variables=tuple(variables)))
        return not self._still_differs_no_later(
            (saved_and_held_run[0], self.search.run_and_record(plan, "variable-alone", ("variable",)))
        )


def move_to_file_writing_line_if_any(
    decisive: DecisiveVariable, write_file_line_and_path: tuple[str, int, str] | None
) -> DecisiveVariable:
    """A variable that may have its value from a file which the run itself wrote: the writing is the likelier place."""
    if write_file_line_and_path is None:
        return decisive
    file, line, path = write_file_line_and_path
    why = f"{os.path.basename(path)}, which the program read before, had other contents: it is written at line {line}"
    writing = DifferingVariable(file, line, decisive.variable.variable)
    return DecisiveVariable(writing, False, (*decisive.evidence, why), (decisive.variable, *decisive.rivals))


def can_pin_seed_at_line(suspect: Suspect) -> bool:
    """Whether a suspect is a line that seeds a generator, which can be given a fixed seed."""
    return any(pin.startswith(f"{pins.SEED}@") for pin in suspect.pins)


def rerun_and_find_decisive_seed(
    search: VariableRunner, situation: Situation, suspects: Sequence[Suspect]
) -> Suspect | None:
    """The first line that seeds a generator such that the difference goes if that seed is fixed; None if none does."""
    for number, suspect in enumerate(suspects[:MOST_SEEDS], 1):
        trials = TRIALS_BY_CHANCE if suspect.kind == "object-id" else 1
        plans = [run.plan.with_added_pins(*suspect.pins) for run in (situation.a, situation.b)]
        names = f"seed-{number}a", *(f"seed-{number}b" for _ in range(trials))
        first, *others = (
            search.run_and_record(plan, name, (f"pin:{pins.SEED}",))
            for plan, name in zip((plans[0], *[plans[1]] * trials), names, strict=True)
        )
        if not any(differs_no_later_than_situation(search.compare_runs(first, other), situation) for other in others):
            return suspect
    return None


def rerun_and_find_decisive_env_read(
    search: VariableRunner, situation: Situation, suspects: Sequence[Suspect]
) -> Suspect | None:
    """The first line that reads variables of the environment such that the difference goes if it reads those of the
    other run; None if none does: libraries read them too."""
    control, varied = situation.a.plan, situation.b.plan
    names = {name for plan in (control, varied) for name in plan.environment}
    values = {name: control.environment.get(name, os.environ.get(name)) for name in (*sorted(names), "HOME", "PWD")}
    for number, suspect in enumerate(suspects[:MOST_SEEDS], 1):
        held = HeldEnvironment(suspect.file, suspect.line, values)
        run = search.run_and_record(varied.with_watch(held_environment=held), f"read-{number}", ("environment",))
        if not differs_no_later_than_situation(search.compare_runs(situation.a, run), situation):
            why = "if this line reads what it reads in the other run, the difference goes"
            return replace(suspect, evidence=(*suspect.evidence, why), certain=True)
    return None


def rerun_and_move_to_origin_of_seed(search: VariableRunner, situation: Situation, suspect: Suspect) -> Suspect:
    """The suspect at the line that makes what a generator is seeded with, if the seeding line does not make it itself.

    That this seed matters, experiments have shown; its value is followed back through what differs in both runs.
    """
    if MAKE_SEEDS & list_names_read(read_statement_source_or_empty(suspect.file, suspect.line)):
        return suspect
    a, b = (
        search.run_and_record(run.plan.with_watch(trace_lines=True, depth="steps"), f"seed-lines-{letter}", ("lines",))
        for run, letter in ((situation.a, "a"), (situation.b, "b"))
    )
    found = find_origin_outside_statement(a, b, situation.difference.role, suspect.file, suspect.line)
    if found is None:
        return suspect
    file, line, name = found
    why = f"that value comes from `{name}` at line {line}, which differs while nothing it is made of does"
    return replace(suspect, file=file, line=line, evidence=(*suspect.evidence, why))


def rerun_and_find_differing_variable(
    search: VariableRunner, situation: Situation, plan_a: RunPlan, plan_b: RunPlan, run_name: str
) -> tuple[DifferingVariable | None, tuple[Run, Run]]:
    """Run both plans again with every line traced: where they part, and the runs."""
    run_a, run_b = (
        search.run_and_record(plan.with_watch(trace_lines=True, depth="steps"), f"{run_name}-{letter}", ("lines",))
        for letter, plan in (("a", plan_a), ("b", plan_b))
    )
    return find_first_differing_variable(run_a, run_b, role=situation.difference.role), (run_a, run_b)


def differs_no_later_than_situation(difference: Difference | None, situation: Situation) -> bool:
    """Whether runs still differ where they did: not at all, or only later, shows that what was held matters."""
    return difference is not None and not comes_later_in_same_thread(difference, situation.difference)

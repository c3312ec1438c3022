"""Runs of both sides of a neutral switch, with the same steps, calls and names, so that they can be compared."""

from __future__ import annotations

from dataclasses import replace

from samerun.check.neutral.call_alignment import CallAlignment
from samerun.check.neutral.padded_parameters import find_padded_parameters, replace_padded_parameters_by_sums
from samerun.check.neutral.run_numbers import RunNumbers
from samerun.check.neutral.runs_of_sides import (
    NumberedRun,
    add_tied_parameters,
    align_parameter_names,
    list_parameter_names,
)
from samerun.check.neutral.step_rounds import StepRounds


class SideAlignment:
    """What both sides have under which names. `padded`: parameters of other sizes, compared by their sums."""

    def __init__(self, a: NumberedRun, b: NumberedRun, calls: CallAlignment) -> None:
        """a, b: with their steps in rounds and their calls aligned already."""
        self._calls = calls
        self._parameter_names = list_parameter_names(a.numbers) | list_parameter_names(b.numbers)
        self.padded: frozenset[str] = frozenset()
        self.padded = find_padded_parameters(*map(self._with_all_names, (a.numbers, b.numbers)))
        self.a = replace(a, numbers=self._with_all_names(a.numbers))
        self.b = self._with_names_of_side_a(b)

    def align(self, made: NumberedRun, rounds: StepRounds | None) -> NumberedRun:
        """Another run of a side; rounds: those of the side."""
        made = made.in_rounds(rounds)
        return self._with_names_of_side_a(replace(made, numbers=self._calls.apply(made.numbers)))

    def _with_names_of_side_a(self, made: NumberedRun) -> NumberedRun:
        return replace(made, numbers=align_parameter_names(self.a.numbers, self._with_all_names(made.numbers)))

    def _with_all_names(self, numbers: RunNumbers) -> RunNumbers:
        numbers = add_tied_parameters(numbers, self._parameter_names)
        return replace_padded_parameters_by_sums(numbers, self.padded)

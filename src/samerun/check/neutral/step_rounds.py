"""Optimizer steps that follow one backward pass, taken as one step: where a side has its weights in several optimizers.

One optimizer for all weights, one for each group, and one for each weight that steps inside of the backward pass, do
the same work in other numbers of steps.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, replace

from samerun.check.neutral.run_numbers import NumberRecord, RunNumbers


@dataclass(frozen=True)
class StepRounds:
    """Which optimizer steps of a run are one round; rounds are numbered from 1, as steps are.

    last_steps: the last optimizer step of each round.
    """

    last_steps: tuple[int, ...]

    def first_step(self, number: int) -> int:
        return self.last_step(number - 1) + 1

    def last_step(self, number: int) -> int:
        """0 before the first round; behind the last one each step is a round."""
        known = max(0, min(number, len(self.last_steps)))
        return (self.last_steps[known - 1] if known else 0) + number - known

    def round_of(self, step: int) -> int:
        return bisect_right(self.last_steps, step - 1) + 1

    def apply(self, run: RunNumbers) -> RunNumbers:
        """A run of this side with its rounds as if they were its steps."""
        merged = replace(run, steps={}, operators={}, rank_operators={}, seeding_lines={})
        for step, record in sorted(run.steps.items()):
            number = self.round_of(step)
            merged.steps[number] = _add_step(merged.steps.get(number), record, number)
        for own, steps in ((merged.operators, run.operators), (merged.rank_operators, run.rank_operators)):
            for step, operators in sorted(steps.items()):
                known = own.setdefault(self.round_of(step), [])
                known += [operator.behind(len(known)) for operator in operators]
        for step, lines in sorted(run.seeding_lines.items()):
            merged.seeding_lines.setdefault(self.round_of(step), []).extend(lines)
        calls = {number: replace(call, head={**call.head, "step": self.round_of(call.head["step"] + 1) - 1})
                 for number, call in run.calls.items()}  # fmt: skip
        return replace(merged, calls=calls)


def _add_step(known: NumberRecord | None, record: NumberRecord, number: int) -> NumberRecord:
    """The record of a round with one more step; losses are those of its first step."""
    if known is None:
        return replace(record, head={**record.head, "number": number})
    values = {**known.values, **{key: value for key, value in record.values.items() if key[0] != "loss"}}
    unread = [*known.head.get("unread", ()), *record.head.get("unread", ())]
    return replace(
        known, head={**known.head, "unread": unread, "random": record.head.get("random", "")}, values=values,
        dtypes={**record.dtypes, **known.dtypes}, shares=known.shares | record.shares,
    )  # fmt: skip


def find_rounds(run: RunNumbers, step_count: int) -> StepRounds | None:
    """The rounds of a run with so many steps; None where a step was not written down, or begins without a backward
    pass.
    """
    records = [run.steps.get(step) for step in range(1, step_count + 1)]
    passes = [record.head.get("backwards", 0) for record in records if record is not None]
    if len(passes) < step_count or not passes or not passes[0]:
        return None
    return StepRounds(tuple(step for step in range(1, step_count + 1) if step == step_count or passes[step]))

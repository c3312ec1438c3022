"""The runs of both sides of a neutral switch: what they wrote down, whether they can be compared, where they part."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, replace

import numpy as np

from samerun.base.records import NeutralResult
from samerun.check.execution.runner import Run
from samerun.check.neutral import rounding_verdict
from samerun.check.neutral.run_numbers import Array, NumberRecord, RunNumbers, parse_source_line
from samerun.check.neutral.step_rounds import StepRounds, find_rounds
from samerun.check.neutral.value_correspondence import Culprit
from samerun.check.plan import RunPlan
from samerun.check.search.report_records import relative_path_if_below_working_directory
from samerun.record.comparison.rounding import UNIT, ItemKey, norm
from samerun.record.trace import format as f
from samerun.record.trace.run import read_optimizer_steps, select_events

SAME_SUM = 2.0**-44
"""So far apart, relative to the sum of their magnitudes, are float64 sums of the same numbers in another order."""
COMPARED_LEAVES = ("params", "grads", "buffers")


class NotComparable(Exception):
    """The two sides cannot be aligned; the text says why."""


@dataclass(frozen=True)
class NumberedRun:
    """A run, the plan that was asked for (that of the run itself names its folder), and the numbers it wrote down.

    rounds: if not None, steps are counted by rounds of optimizer steps.
    """

    plan: RunPlan
    run: Run
    numbers: RunNumbers
    rounds: StepRounds | None = None

    @property
    def step_count(self) -> int:
        return self.run.steps if self.rounds is None else len(self.rounds.last_steps)

    def in_rounds(self, rounds: StepRounds | None) -> NumberedRun:
        return self if rounds is None else replace(self, rounds=rounds, numbers=rounds.apply(self.numbers))


def make_run_name(text: str) -> str:
    """The name of a run, and of its folder, for a side of a switch."""
    return text.replace("=", "-").replace("/", "-")[:80]


def require_ended_well(side: NumberedRun, side_description: str) -> None:
    """Raises NotComparable for a run that failed, with the last line it wrote."""
    if side.run.timed_out:
        raise NotComparable(f"{side_description} did not end in time")
    if side.run.exit_code:
        said = side.run.read_output_tail("stderr").strip().splitlines()
        raise NotComparable(
            f"{side_description} ended with exit code {side.run.exit_code}" + (f": {said[-1]}" if said else "")
        )


def count_uses(used_feature: str, *sides: NumberedRun) -> int:
    """How often the runs used what a switch acts on."""
    if used_feature == "compile":
        traces = [trace for side in sides for trace in side.run.traces.traces.values()]
        return sum(event.name == "torch.compile" for trace in traces for event in select_events(trace, (f.FACT,)))
    if used_feature == "attention":
        summaries = [each for side in sides for step in side.numbers.operators.values() for each in step]
        return sum("scaled_dot_product" in summary.name for summary in summaries)
    return sum(side.numbers.uses.get(used_feature, 0) for side in sides)


def is_run_by_ranks(*sides: NumberedRun) -> bool:
    """Whether one of the runs is that of several processes, of which each makes its share of the calls."""
    return any(side.run.traces.list_rank_roles() for side in sides)


@dataclass(frozen=True)
class FirstChange:
    """The first record (step or call) in which any bit differs. `step`: the step that it belongs to, from 1."""

    kind: rounding_verdict.RecordKind
    number: int
    step: int


def count_steps_by_rounds_if_uneven(a: NumberedRun, b: NumberedRun) -> tuple[NumberedRun, NumberedRun]:
    """Both runs, by rounds of steps if only so they have as many: one side may have more optimizers."""
    rounds = [find_rounds(side.numbers, side.step_count) for side in (a, b)] if a.step_count != b.step_count else []
    counts = {None if each is None else len(each.last_steps) for each in rounds}
    if len(counts) != 1 or None in counts:
        return a, b
    return a.in_rounds(rounds[0]), b.in_rounds(rounds[1])


def find_first_differing_step_or_call(a: NumberedRun, b: NumberedRun) -> FirstChange | None:
    """None if all bits are the same: after every step, in every call without gradients, and of the models at the end.

    Raises NotComparable if the runs made different numbers of steps.
    """
    ranks = [side.run.traces.list_rank_roles() for side in (a, b)]
    one, other = (side.run.traces.traces[roles[0]] if roles else side.run.traces.main
                  for side, roles in zip((a, b), ranks, strict=True))  # fmt: skip
    if one is None or other is None:
        raise NotComparable("one side computed nothing that could be compared")
    if a.step_count != b.step_count:
        raise NotComparable(f"side A made {a.step_count} optimizer steps, and side B {b.step_count}")
    calls = find_first_differing_call(a.numbers, b.numbers)
    if a.rounds is not None and (number := find_first_differing_round(a.numbers, b.numbers)):
        is_call_first = calls is not None and calls.step < number
        return calls if is_call_first else FirstChange("step", number, number)
    steps = [read_optimizer_steps(trace) if a.rounds is None else [] for trace in (one, other)]
    for left, right in zip(*steps, strict=False):
        on_both = left.leaves.keys() & right.leaves.keys()  # a step written by hand has no gradients
        if on_both.intersection(left.names_of_differing_leaves(right), COMPARED_LEAVES):
            if calls is not None and calls.step < left.number:
                return calls
            return FirstChange("step", left.number, left.number)
    if calls is not None:
        return calls
    values = find_first_step_with_differing_buffers(a.numbers, b.numbers)
    if values is not None:
        return values
    ends = a.numbers.models, b.numbers.models
    # Wrappers (compilation, data parallelism) are models of a class of their own.
    if any(ends[0][kind] != ends[1][kind] for kind in ends[0].keys() & ends[1].keys()):
        raise NotComparable("the models differ at the end, but in no optimizer step and no result")
    return None


def find_first_differing_round(a: RunNumbers, b: RunNumbers) -> int:
    """The first round in which a number of parameters, gradients or buffers differs, or in which one side has other
    parameters; 0 if there is none.

    Digests are those of the weights of one optimizer, so that the sides have none that could be compared.
    """
    for number in sorted(a.steps.keys() & b.steps.keys()):
        one, other = a.steps[number], b.steps[number]
        names, other_names = ({key for key in r.values if key[0] == "parameter"} for r in (one, other))
        keys = rounding_verdict.common_keys((one, other))
        if names != other_names or not all(
            are_equal_counting_nan_as_equal(one.values[k], other.values[k]) for k in keys
        ):
            return number
    return 0


def find_first_differing_call(a: RunNumbers, b: RunNumbers) -> FirstChange | None:
    """The first call of a model without gradients whose results differ; None if there is none."""
    for number in sorted(a.calls.keys() & b.calls.keys()):
        record, other = a.calls[number], b.calls[number]
        is_same = sums_agree_within_rounding if "merged" in record.head else are_equal_counting_nan_as_equal
        if not all(is_same(record.values[k], other.values[k]) for k in rounding_verdict.common_keys((record, other))):
            return FirstChange("call", number, record.head["step"] + 1)
    return None


def are_equal_counting_nan_as_equal(one: Array, other: Array) -> bool:
    return np.array_equal(one, other, equal_nan=True)


def sums_agree_within_rounding(one: Array, other: Array) -> bool:
    """Whether sums over the same elements, which were added up in another order, are the same."""
    size = np.maximum(np.abs(one[1]), np.abs(one))  # a plain sum may cancel: its terms are those of the magnitudes
    return bool(np.all((np.abs(one - other) <= SAME_SUM * size) | (one == other) | (np.isnan(one) & np.isnan(other))))


def find_first_step_with_differing_buffers(a: RunNumbers, b: RunNumbers) -> FirstChange | None:
    """The first step behind which something that no optimizer trains differs (the average of weights); or None."""
    for number in sorted(a.steps.keys() & b.steps.keys()):
        records = a.steps[number], b.steps[number]
        keys = [key for key in rounding_verdict.common_keys(records) if key[0] == "buffer"]
        if not all(are_equal_counting_nan_as_equal(records[0].values[k], records[1].values[k]) for k in keys):
            return FirstChange("step", number, number)
    return None


def align_parameter_names(a: RunNumbers, b: RunNumbers) -> RunNumbers:
    """Run B with the parameters of each step under the names that run A has for those in the same places.

    Where one side calls a model and the other uses its parameters only, they have other names there. Only parameters
    of the same sizes that hold about the same values, in the order of the optimizer, are the same ones.
    """
    steps = dict(b.steps)
    for number, record in b.steps.items():
        other = a.steps.get(number)
        names, other_names = (
            [key[1] for key in each.values if key[0] == "parameter"] if each is not None else []
            for each in (record, other)
        )
        if other is None or set(names) == set(other_names) or len(names) != len(other_names):
            continue
        renamed = dict(zip(names, other_names, strict=True))
        if all(
            point_in_similar_directions(record.values["parameter", own], other.values["parameter", its])
            for own, its in renamed.items()
        ):

            def rename(key: ItemKey, renamed: dict[str, str] = renamed) -> ItemKey:
                return (key[0], renamed.get(key[1], key[1])) if key[0] in ("parameter", "gradient") else key

            steps[number] = replace(
                record,
                values={rename(key): value for key, value in record.values.items()},
                dtypes={rename(key): value for key, value in record.dtypes.items()},
                shares=frozenset(map(rename, record.shares)),
            )
    return replace(b, steps=steps)


def describe_what_was_compared(step_count: int, call_count: int) -> str:
    """Steps, or else calls of models without gradients. Raises NotComparable if there are none."""
    if not step_count and not call_count:
        raise NotComparable("neither side makes optimizer steps, or calls models without gradients")
    count, what = (step_count, "optimizer step") if step_count else (call_count, "call")
    return f"{count} {what}{'s' if count != 1 else ''}{'' if step_count else ' of models'}"


def add_tied_parameters(run: RunNumbers, names: set[str]) -> RunNumbers:
    """The run with its tied parameters under all of these names: the other side may have parameters of their own."""
    tied = {alias: name for record in run.steps.values() for alias, name in record.head.get("tied", {}).items()
            if alias in names}  # fmt: skip
    steps = dict(run.steps)
    for number, record in run.steps.items() if tied else ():
        values, dtypes = dict(record.values), dict(record.dtypes)
        for kind in ("parameter", "gradient"):
            for alias, name in tied.items():
                if (kind, name) in values and (kind, alias) not in values:
                    values[kind, alias], dtypes[kind, alias] = values[kind, name], dtypes[kind, name]
        steps[number] = replace(record, values=values, dtypes=dtypes)
    return replace(run, steps=steps)


def list_parameter_names(run: RunNumbers) -> set[str]:
    return {key[1] for record in run.steps.values() for key in record.values if key[0] == "parameter"}


def explain_lost_tie(a: RunNumbers, b: RunNumbers) -> Culprit | None:
    """Which parameter of one side is another one of the other side; None if there is none.

    The line is the last that gives one of the two another parameter on the side that lost the tie alone; where there is
    none, the line that ties them on the other side.
    """
    for side, run, other_side, other in (("A", a, "B", b), ("B", b, "A", a)):
        own = list_parameter_names(other)
        for record in run.steps.values():
            for alias, name in record.head.get("tied", {}).items():
                if alias in own:
                    lost, kept = (
                        [line for key in (name, alias) for line in record.head.get("given", {}).get(key, ())]
                        for record in (next(iter(other.steps.values())), record)
                    )
                    given = [line for line in lost if line not in kept] or kept
                    text = f"{alias} is {name} itself on side {side}, and a parameter of its own on side {other_side}"
                    return Culprit("", *parse_source_line(given[-1] if given else ""), text)
    return None


def explain_parameters_trained_on_one_side(a: RunNumbers, b: RunNumbers) -> Culprit | None:
    """Parameters that both sides' models hold and that only one side's optimizers move, by where one was made."""
    for side, run, other in (("B", b, a), ("A", a, b)):
        first = next(iter(other.steps.values()), None)
        untrained = set(first.head.get("untrained", ()) if first is not None else ())
        names = sorted(untrained & list_parameter_names(run) - list_parameter_names(other))
        moved = [(name, step) for name in names if (step := find_step_that_moves(run, name)) is not None]
        if moved:
            name, step = moved[0]
            which = name if len(moved) == 1 else f"{name} and {len(moved) - 1} more"
            text = f"{which} is trained on side {side} only, though the models of both sides hold it"
            line = step.head.get("made", {}).get("line") or step.head["line"]
            return Culprit(step.head["optimizer"], *parse_source_line(line), text)
    return None


def find_step_that_moves(run: RunNumbers, parameter_name: str) -> NumberRecord | None:
    """The first optimizer step behind which a parameter is another one than behind the step before; None if none is."""
    key = ("parameter", parameter_name)
    records = [record for record in run.steps.values() if key in record.values]
    return next(
        (
            later
            for one, later in itertools.pairwise(records)
            if not are_equal_counting_nan_as_equal(one.values[key], later.values[key])
        ),
        None,
    )


ALIKE = 0.9
"""Of two parameters that began with the same values, the cosine of the angle between them after few steps."""


def point_in_similar_directions(one: Array, other: Array) -> bool:
    if len(one) != len(other):
        return False
    size = float(np.linalg.norm(one) * np.linalg.norm(other))
    return size == 0.0 or len(one) == 1 or float(np.dot(one, other)) >= ALIKE * size


def find_step_or_call_record(
    numbers: RunNumbers, kind: rounding_verdict.RecordKind, number: int
) -> NumberRecord | None:
    return (numbers.steps if kind == "step" else numbers.calls).get(number)


def require_same_names_and_sizes_at_first_change(a: RunNumbers, b: RunNumbers, first_change: FirstChange) -> None:
    """Raises NotComparable if the two sides train parameters of other names or sizes."""
    one, other = (find_step_or_call_record(numbers, first_change.kind, first_change.number) for numbers in (a, b))
    if one is None or other is None:
        raise NotComparable("the step that differs first was written down on one side only")
    for kind in ("parameter",) if "merged" in one.head else ("parameter", "output"):  # of calls that were merged
        unread = {name for record in (one, other) for name in record.head.get("unread", ())}  # said, and left out
        names = [{key[1]: len(v) for key, v in record.values.items() if key[0] == kind and key[1] not in unread}
                 for record in (one, other)]  # fmt: skip
        if names[0] != names[1]:
            odd = sorted(name for name in {*names[0], *names[1]} if names[0].get(name) != names[1].get(name))
            sizes = [each.get(odd[0]) for each in names]
            if None in sizes:
                raise NotComparable(f"{kind} {odd[0]} is there on one side only; nothing was compared")
            raise NotComparable(
                f"{kind} {odd[0]} is another one on side B (of {sizes[0]} numbers taken on A, {sizes[1]} on B); nothing"
                " was compared"
            )


def require_common_decisive_values(a: RunNumbers, b: RunNumbers) -> None:
    """Raises NotComparable if the runs have no parameter, buffer or result in common that could be read."""
    compared: set[str] = set()
    for _, _, records in rounding_verdict.iterate_records_present_in_all_runs((a, b)):
        compared.update(key[0] for key in rounding_verdict.common_keys(records))
    if not compared.intersection(rounding_verdict.DECISIVE):
        unread = describe_unreadable_parameters_or_empty(a, b) or "there are none on both sides"
        only = " and ".join(sorted(f"{kind}s" for kind in compared)) or "nothing"
        raise NotComparable(f"parameters, buffers and results could not be compared ({unread}), only {only} could")


def describe_unreadable_parameters_or_empty(a: RunNumbers, b: RunNumbers) -> str:
    """In words, which parameters samerun could not read on a side; "" if it read all."""
    names = sorted({name for run in (a, b) for record in run.steps.values() for name in record.head.get("unread", [])})
    more = f" and {len(names) - 3} others" if len(names) > 3 else ""
    return f"not read: {', '.join(names[:3])}{more}" if names else ""


def computes_coarsely(side: NumberedRun) -> bool:
    """Whether a run uses autocast, or computes in a coarser format than float32 as far as its operators were noted."""
    noted = (operator for step in side.numbers.operators.values() for operator in step)
    return side.numbers.uses.get("autocast", 0) > 0 or any(
        UNIT.get(dtype, 0.0) > UNIT["float32"] for operator in noted for dtype, _, _ in operator.results
    )


def with_culprit(result: NeutralResult, culprit: Culprit) -> NeutralResult:
    file = relative_path_if_below_working_directory(culprit.file)
    detail = "; ".join(filter(None, (result.detail, culprit.why)))
    return replace(result, detail=detail, operator=culprit.operator, file=file, line=culprit.line)


def with_step_value_and_float64_errors(
    base: NeutralResult, judgement: rounding_verdict.RunJudgement, changed: FirstChange, a: NumberedRun, b: NumberedRun,
    a64: NumberedRun,
) -> NeutralResult:  # fmt: skip
    """The result with how far both sides are from side A in float64, at the record that tells the most."""
    wrong = judgement.verdict == "wrong"
    kind, number = (judgement.kind, judgement.number) if wrong else (changed.kind, changed.number)
    records = [find_step_or_call_record(n, kind, number) for n in (a.numbers, b.numbers, a64.numbers)]
    if any(record is None for record in records):
        return base
    of_a, of_b, exact = (record for record in records if record is not None)
    worst = judgement.worst.key if wrong and judgement.worst is not None else None
    keys = rounding_verdict.common_keys((of_a, of_b, exact))
    kinds = ("gradient", "output", "parameter") if worst is None else (worst[0],)
    kind_of = next((each for each in kinds if any(key[0] == each for key in keys)), "")
    keys = [key for key in keys if key[0] == kind_of] if worst is None else [worst]
    ulp = math.hypot(*(rounding_verdict.ulp_norm(exact, of_a, key) for key in keys))
    errors = [
        math.hypot(*(norm(r.values[key] - exact.values[key]) for key in keys)) / ulp if ulp else math.inf
        for r in (of_a, of_b)
    ]  # fmt: skip
    step = judgement.number if kind == "step" else of_a.head["step"] + 1
    base = replace(base, step=step if wrong else base.step, value=" ".join(worst) if worst else f"all {kind_of}s")
    if not all(map(math.isfinite, errors)):
        return base
    return replace(base, error_a_ulp=float(f"{errors[0]:.4g}"), error_b_ulp=float(f"{errors[1]:.4g}"))

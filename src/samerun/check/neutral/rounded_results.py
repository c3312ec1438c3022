"""Results of neutral switches: rounding, and evaluations that give results of other sizes on both sides."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from samerun.base.records import NeutralResult
from samerun.base.user_code import is_library_or_generated_file
from samerun.check.evidence.results import find_differing_printed_fractions
from samerun.check.neutral.call_alignment import CallAlignment, compare_uses_of_results
from samerun.check.neutral.difference_explanation import explain_difference
from samerun.check.neutral.runs_of_sides import (
    NotComparable,
    NumberedRun,
    describe_unreadable_parameters_or_empty,
    describe_what_was_compared,
    find_first_differing_step_or_call,
    require_ended_well,
    with_culprit,
)
from samerun.check.neutral.value_correspondence import find_operator_with_new_value
from samerun.check.plan import RunPlan
from samerun.check.search.report_records import relative_path_if_below_working_directory
from samerun.check.variations.neutral_switches import NeutralSwitch, inside_portable


def require_same_printed_numbers(a: NumberedRun, b: NumberedRun, rerun: Callable[[NumberedRun], NumberedRun]) -> None:
    """Raises NotComparable where all that was compared is the same, and each side prints numbers of its own every time.

    A mean over batches may be taken by plain Python, of models that are plain functions.
    """
    printed = find_differing_printed_fractions(a.run, b.run)
    if printed is not None and all(rerun(side).run.wrote_the_same_stdout(side.run) for side in (a, b)):
        compared = describe_what_was_compared(a.step_count, len(a.numbers.calls))
        raise NotComparable(
            f"the same bits in {compared}, but side A prints {printed[0]!r}, and side B {printed[1]!r}: what they are"
            " computed of was not compared"
        )


def make_same_result(switch: NeutralSwitch, a: NumberedRun, b: NumberedRun) -> NeutralResult:
    """No bit differs; variables that nothing reads are named. Raises NotComparable where nothing was compared."""
    text = f"{switch.detail}; the same bits in {describe_what_was_compared(a.step_count, len(a.numbers.calls))}"
    unread = list_variables_named_nowhere(a, b)
    text += f"; {' and '.join(unread)} stands in no file of the program" if unread else ""
    return NeutralResult(switch.name, "same", text)


def list_variables_named_nowhere(a: NumberedRun, b: NumberedRun) -> list[str]:
    """Variables of the environment that tell the sides apart, and that no file of the program has a word for."""
    one, other = (side.plan.environment for side in (a, b))
    names = sorted(name for name in {*one, *other} if one.get(name) != other.get(name))
    traces = [trace for side in (a, b) for trace in side.run.traces.traces.values()] if names else []
    located = {location.file for trace in traces for location in trace.locations}
    files = {file for file in located if not is_library_or_generated_file(file)}
    text = "\n".join(read_or_empty(file) for file in sorted(files.union(a.plan.command)) if file.endswith(".py"))
    return [name for name in names if not re.search(rf"\b{re.escape(name)}\b", text)]


def read_or_empty(file: str) -> str:
    try:
        return Path(file).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def judge_uses_of_results_if_known(
    switch: NeutralSwitch, calls: CallAlignment, a64: NumberedRun, b64: NumberedRun
) -> NeutralResult | None:
    """Whether the program computes the same of results of calls; None where its two ways have nothing in common.

    a64, b64: the runs in float64 that have the operators of the first step whose calls were not compared.
    """
    step = calls.first_uncompared_step
    uses = compare_uses_of_results(*(side.numbers.operators.get(step, []) for side in (a64, b64)))
    if uses == "unknown":
        return None
    text = (
        f"{switch.detail}; results of calls without gradients have other sizes on side B ({calls.uncompared[0]}), and"
    )
    if uses == "corresponding":
        return NeutralResult(switch.name, "rounding", f"{text} what is computed of them corresponds", step=step)
    result = NeutralResult(switch.name, "wrong", f"{text} what is computed of them differs, in float64 too", step=step)
    told = explain_difference(None, None, a64.numbers, b64.numbers, step)
    return result if told is None else with_culprit(result, told)


def require_same_result_sizes_at_end(a: NumberedRun, calls: CallAlignment) -> None:
    """Raises NotComparable if results have other sizes on side B and none that can be compared comes of them."""
    if calls.ends_uncompared:
        raise NotComparable(
            f"the same bits in {a.step_count} optimizer steps, but results of calls without gradients have"
            f" other sizes on side B ({', '.join(calls.uncompared[:3])}): they were not compared"
        )


def describe_rounding(
    base: NeutralResult, a: NumberedRun, b: NumberedRun, a64: NumberedRun, b64: NumberedRun
) -> NeutralResult:
    """Add which operator rounds in another way first, and what could not be compared."""
    new = find_operator_with_new_value(*(side.numbers.operators.get(base.step, []) for side in (b, a)))
    if new is not None:
        file = relative_path_if_below_working_directory(new.location.file)
        base = replace(base, operator=new.name, file=file, line=new.location.line)
    how = "in float64 both sides come together, so that what differs is rounding"
    narrow = sorted({*a64.numbers.narrow, *b64.numbers.narrow})
    how += f"; {', '.join(narrow[:3])} stayed in single precision there" if narrow else ""
    unread = describe_unreadable_parameters_or_empty(a.numbers, b.numbers)
    how += f"; {unread}" if unread else ""
    return replace(base, detail=f"{base.detail}; {how}")


def accept_in_envelope_or_raise(base: NeutralResult, why_no_float64: str) -> NeutralResult:
    """Without float64: a difference that stays where a disturbance of one ulp leads is rounding."""
    if base.growth == "outside":
        raise NotComparable(
            f"the difference grows out of the envelope, and float64 cannot tell what it is: {why_no_float64}"
        )
    return replace(base, detail=f"{base.detail}; it stays in the envelope of one ulp ({why_no_float64})")


def run_inside_portable_and_describe(a: NumberedRun, b: NumberedRun, run: Callable[[RunPlan, str], NumberedRun]) -> str:
    """Whether `portable()` takes a difference away, by running both sides inside of it."""
    try:
        sides = [run(inside_portable(side.plan), f"{side.run.name}-portable").in_rounds(side.rounds) for side in (a, b)]
        for side in sides:
            require_ended_well(side, "the program")
        stays = find_first_differing_step_or_call(*sides)
    except NotComparable as error:
        return f"inside samerun.portable() {error}"
    return f"inside samerun.portable() both sides {'differ too' if stays else 'give the same bits'}"

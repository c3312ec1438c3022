"""Random numbers that one side of a neutral switch draws more often, elsewhere, or a second time."""

from __future__ import annotations

from collections import Counter

from samerun.base.user_code import format_source_location
from samerun.check.neutral.backward_pass_differences import operator_at_line
from samerun.check.neutral.operator_roles import IN_PLACE
from samerun.check.neutral.run_numbers import (
    NumberRecord,
    OperatorSummary,
    RunNumbers,
    find_caller_of_one_side,
    parse_source_line,
)
from samerun.check.neutral.value_correspondence import (
    Culprit,
    ValueIndex,
    mark_corresponding,
)
from samerun.record.config import INPUT_OF, RECOMPUTED, RESTORED, RESULT_OF
from samerun.record.trace import format as f


def explain_by_random_call_counts(
    b: NumberRecord, a: NumberRecord, operators_b: list[OperatorSummary], operators_a: list[OperatorSummary]
) -> Culprit | None:
    """Another number of draws, with the line that draws more often; or masks drawn a second time."""
    drawn_a, drawn_b = (
        Counter(operator_at_line(o) for o in each if o.is_random) for each in (operators_a, operators_b)
    )
    again = b.head.get("lines", {}).get(RECOMPUTED) or a.head.get("lines", {}).get(RECOMPUTED)
    is_as_often = a.head.get("random", "a") == b.head.get("random", "b")
    redrawn = next((o for o in operators_b if o.is_random and o.is_recomputed), None)
    is_redrawn = redrawn is not None and (not is_as_often or not is_drawn_in_forward_pass(redrawn, operators_b))
    if redrawn is not None and is_redrawn and not again and not any(o.is_recomputed for o in operators_a):
        file, line = find_caller_of_one_side(redrawn, operators_b, operators_a) or redrawn.location[:2]
        drawn_at = format_source_location(redrawn.location.file, redrawn.location.line)
        text = f"on side B {redrawn.name} draws again in the backward pass: the recomputation of {drawn_at} does not"
        if restored := b.head.get("lines", {}).get(RESTORED):
            file, line = parse_source_line(next(iter(restored)))
            read_at = format_source_location(file, line)
            return Culprit(
                redrawn.name, file, line, f"{text} begin with its random states, but with those of {read_at}"
            )
        return Culprit(redrawn.name, file, line, f"{text} restore the random states")
    differing = [key for key in dict.fromkeys((*drawn_b, *drawn_a)) if drawn_a[key] != drawn_b[key]]
    # A loader that works ahead draws the next order of samples a step earlier, and workers draw what depends on the
    # sample alone: a line that draws from torch's own generator, and on one side only, tells more.
    own = {operator_at_line(o) for o in (*operators_a, *operators_b) if o.draws_from == "own generator"}
    if not differing or are_draws_without_effect(differing, operators_b, operators_a):
        return None
    if is_as_often:  # by other operators, as compiled code does
        differing = [key for key in differing if key in own]
    if not differing or (
        b.head.get("kind") != "call"
        and all(key in own for key in differing)
        and training_inputs_correspond(operators_b, operators_a)
    ):
        return None
    for key in sorted(differing, key=lambda each: (each in own, min(drawn_a[each], drawn_b[each]) > 0)):
        name, file, line = key
        times_a, times_b = ("once" if n == 1 else f"{n} times" for n in (drawn_a[key], drawn_b[key]))
        text = f"{name} draws {times_a} in this step on side A and {times_b} on B"
        if again and drawn_b[key] > drawn_a[key]:
            file, line = parse_source_line(next(iter(again)))
            drawn_at = format_source_location(key[1], key[2])
            text += f": the recomputation of {drawn_at} does not restore the random states (preserve_rng_state=False)"
        elif drawn_b[key] > drawn_a[key] > 0 and any(o.phase == f.BACKWARD and o.is_random for o in operators_b):
            text += ": numbers are drawn again in the backward pass"
        return Culprit(name, file, line, text)
    return None


def find_seeding_line_of_one_side(a: RunNumbers, b: RunNumbers, step: int) -> tuple[str, int] | None:
    """Where one side alone gave a generator another state in this step; None if neither did, or both."""
    lines_a, lines_b = (run.seeding_lines.get(step, []) for run in (a, b))
    only = [line for line in lines_b if line not in lines_a] or [line for line in lines_a if line not in lines_b]
    return only[-1] if only else None


def are_draws_without_effect(
    keys: list[tuple[str, str, int]], operators_b: list[OperatorSummary], operators_a: list[OperatorSummary]
) -> bool:
    """Whether operators (name, file and line) fill tensors of which nothing is computed, and all others that draw from
    torch's own generator draw the same: weights that are made with random numbers, and then written over.
    """
    if not all(IN_PLACE.match(name) for name, _, _ in keys):
        return False  # numbers that leave the tensors, as an order of samples does
    sides = ((operators_b, ValueIndex(operators_a)), (operators_a, ValueIndex(operators_b)))
    for operators, others in sides:
        drawn = {at for at, o in enumerate(operators) if operator_at_line(o) in keys}
        if any(source in drawn for o in operators for source, _ in o.sources):
            return False
        if not all(at in drawn or others.contains(sums)
                   for at, o in enumerate(operators) if o.draws_from == "default generator"
                   for _, _, sums in o.results):  # fmt: skip
            return False
    return True


def is_drawn_in_forward_pass(redrawn: OperatorSummary, operators: list[OperatorSummary]) -> bool:
    """Whether the forward pass had drawn the numbers that its recomputation draws; also where nothing tells."""
    forward = [o for o in operators if o.phase == f.FORWARD and not o.is_recomputed]
    return ValueIndex(forward).contains_telling_results_of(redrawn)


def training_inputs_correspond(operators: list[OperatorSummary], others: list[OperatorSummary]) -> bool:
    """Whether models that are called with gradients are given what they are given in the other run."""
    marks = mark_corresponding(operators, others)
    calls: list[bool] = []
    before = ""
    for o, mark in zip(operators, marks, strict=True):
        if o.name.startswith(INPUT_OF):
            calls.append((not before.startswith(INPUT_OF) or calls.pop()) and mark)
        elif o.name.startswith(RESULT_OF) and not before.startswith(RESULT_OF) and calls:
            calls.pop()  # a call without gradients: the results of others are not noted
        before = o.name
    return all(calls)

"""Each side has an operator that corresponds to nothing: which of them tells more, and by which line."""

from __future__ import annotations

from collections import defaultdict
from typing import Any, NamedTuple

from samerun.check.neutral.backward_pass_differences import operator_at_line
from samerun.check.neutral.loss_scaling import result_element_counts
from samerun.check.neutral.operator_roles import IN_PLACE
from samerun.check.neutral.run_numbers import OperatorSummary
from samerun.check.neutral.value_correspondence import MOVES_ELEMENTS, ValueIndex, call_key, mark_corresponding
from samerun.record.config import INPUT_OF, RESULT_OF
from samerun.record.trace import format as f


class OddOperatorOfSide(NamedTuple):
    """The operator of a side (all of its operators) that corresponds to nothing, and when it is called."""

    moment: tuple[int, int]
    side: str
    operators: list[OperatorSummary]
    operator: OperatorSummary


def reads_statistics(operator: OperatorSummary) -> bool:
    """Whether it reads statistics that a model holds: no operator of the step need have written them."""
    return "batch_norm" in operator.name


def choose_side(culprits: list[OddOperatorOfSide]) -> OddOperatorOfSide:
    """The earlier one: what one side lacks shows on the other side, and earlier there.

    Where each side goes a way of its own, that of side B is what was switched on.
    """
    earliest = min(culprits, key=lambda each: each.moment)
    first, last = culprits[0], culprits[-1]
    for reader, writer in ((first, last), (last, first)):
        if reads_statistics(reader.operator) and IN_PLACE.match(writer.operator.name):
            return writer  # before a call, though it belongs to what follows a step (averages of weights)
    b, a = first.operator, last.operator
    if b.location[:2] in a.callers and (b.name == a.name or b.name.startswith(RESULT_OF)):
        return last  # compiled code of side B has no lines but the one that calls it
    own_ways = [
        one
        for one, other in ((first, last), (last, first))
        if one.operator.location not in {o.location for o in other.operators}
    ]
    is_same_phase = first.moment[0] == last.moment[0] and len(culprits) == 2
    if is_same_phase and len(own_ways) == 2:
        return first
    # A step written by hand goes on with other parameters, at a line of both sides, where one side has left it.
    return own_ways[0] if is_same_phase and len(own_ways) == 1 and b.phase == a.phase == f.BETWEEN else earliest


def find_indices_of_one_side(
    operator: OperatorSummary, these: list[OperatorSummary], others: list[OperatorSummary]
) -> OperatorSummary | None:
    """What computes the positions by which an operator takes elements of what is the same, if nothing on the other side
    gives them; or None.
    """
    if not MOVES_ELEMENTS.match(operator.name):
        return None
    marks = mark_corresponding(these, others)
    for each in these:
        if operator_at_line(each) != operator_at_line(operator):
            continue
        made_by = []
        for at, number in each.sources:
            while at >= 0 and these[at].name.startswith(INPUT_OF) and these[at].sources:
                at, number = these[at].sources[0]
            if at >= 0 and not marks[at]:
                made_by.append((these[at], these[at].results[number][0]))
        if [dtype for _, dtype in made_by] in (["int64"], ["int32"]) and made_by[0][0].location.line:
            return made_by[0][0]
    return None


def find_line_writing_the_rest(
    operator: OperatorSummary, reader: OperatorSummary | None, these: list[OperatorSummary],
    others: list[OperatorSummary],
) -> tuple[str, int] | None:  # fmt: skip
    """Where the other side writes what other calls of an operator that writes give: this one it leaves out; or None.

    reader: what gives another result on the other side, for it reads what was not written.
    """
    if not IN_PLACE.match(operator.name) or reader is None or not reads_statistics(reader):
        return None
    written = ValueIndex([o for o in these if call_key(o) == call_key(operator)])
    lines = {o.location[:2] for o in these}
    writers = (o for o in others if IN_PLACE.match(o.name) and o.location.line and o.location[:2] not in lines)
    return next((o.location[:2] for o in writers if any(written.contains(sums) for *_, sums in o.results)), None)


def is_padded_to_other_length(
    operator: OperatorSummary, operators: list[OperatorSummary], others: list[OperatorSummary]
) -> bool:
    """Whether, from an operator of the forward pass on, both sides make results of other sizes at a line, that add up
    to another size, of what gradients flow through.
    """
    if operator.phase != f.FORWARD or not operator.attached:
        return False
    sizes: dict[tuple[Any, ...], list[float]] = defaultdict(list)
    other_sizes: dict[tuple[Any, ...], list[float]] = defaultdict(list)
    for by_call, of_side in ((sizes, operators), (other_sizes, others)):
        for o in of_side:
            by_call[call_key(o)].append(sum(result_element_counts(o)))
    begin = next((at for at, o in enumerate(operators) if o is operator), len(operators))
    keys = {call_key(o) for o in operators[begin:] if o.phase == f.FORWARD and o.attached}
    pairs = ((sizes[key], other_sizes[key]) for key in keys & other_sizes.keys())
    return any(set(own).isdisjoint(other) and sum(own) != sum(other) for own, other in pairs)

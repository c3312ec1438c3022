"""What `samerun check --neutral` names besides values: draws, clipping, second writes; and what it compares at all."""

from __future__ import annotations

import copy
from contextlib import nullcontext
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from samerun.check.neutral.backward_pass_differences import (
    explain_gradients_taken_further,
    explain_missing_gradients,
    explain_second_write,
)
from samerun.check.neutral.difference_explanation import (
    explain_clipping_before_unscaling,
    explain_difference,
    find_line_in_loop_of_forward_pass,
)
from samerun.check.neutral.draw_differences import explain_by_random_call_counts
from samerun.check.neutral.padded_parameters import find_padded_parameters, replace_padded_parameters_by_sums
from samerun.check.neutral.run_numbers import NumberRecord, OperatorSummary, RunNumbers
from samerun.check.neutral.runs_of_sides import (
    align_parameter_names,
    find_first_differing_round,
    find_first_step_with_differing_buffers,
)
from samerun.check.neutral.step_rounds import find_rounds
from samerun.record.config import INPUT_OF, RESULT_OF
from samerun.record.trace import format as f
from samerun.record.trace.reader import SourceLocation
from samerun.record.watching.run_numbers.float64_mode import Float64Mode
from samerun.record.watching.run_numbers.model_values import ModelValues
from samerun.record.watching.run_numbers.operator_summaries import OperatorSummaries
from samerun.record.watching.run_numbers.tensor_numbers import (
    summarise_as_count_and_four_sums,
    take_all_or_sampled_numbers,
)
from samerun.record.watching.run_numbers.value_producers import NOT_OF_THIS_STEP, ValueProducers
from samerun.record.watching.stack_frames import OperatorSite
from samerun.record.watching.torch_internals import is_recomputing


def summary(
    name: str, line: int, values: object, *sources: int, phase: int = f.FORWARD, draws_from: str = "none"
) -> OperatorSummary:
    sums = np.array(summarise_as_count_and_four_sums(torch.as_tensor(np.asarray(values, np.float64))))
    shape = np.shape(np.asarray(values))
    return OperatorSummary(
        name, phase, SourceLocation("a.py", line, ""), tuple((at, 0) for at in sources),
        (("float64", shape, sums),), draws_from,
    )  # fmt: skip


def record(values: dict[tuple[str, str], Any], **head: object) -> NumberRecord:
    return NumberRecord(
        {"number": 1, **head},
        {k: np.asarray(v, np.float64) for k, v in values.items()},
        dict.fromkeys(values, "float32"),
    )


# --- steps of several optimizers
def step_of_part(number: int, passes: int, parameter: float) -> NumberRecord:
    values = {("loss", ""): [1.5] * passes, ("parameter", f"p{number % 2}"): [parameter]}
    return record(values, number=number, backwards=passes)


def test_steps_behind_one_backward_pass_are_one_round() -> None:
    run = RunNumbers(
        {number: step_of_part(number, number % 2, number / 8) for number in (1, 2, 3, 4)},
        {7: record({}, number=7, step=2)},
        {1: [summary("aten.mm", 4, NOISE[0])], 2: [summary("aten.add_", 5, 1.0), summary("aten.mul_", 6, 2.0, 0)]},
    )
    rounds = find_rounds(run, 4)
    assert rounds is not None and rounds.last_steps == (2, 4)
    assert [rounds.round_of(step) for step in (1, 2, 3, 4, 5)] == [1, 1, 2, 2, 3]
    assert [(rounds.first_step(number), rounds.last_step(number)) for number in (1, 2, 3)] == [(1, 2), (3, 4), (5, 5)]
    merged = rounds.apply(run)
    assert [(n, sorted(name for _, name in r.values)) for n, r in merged.steps.items()] == [
        (1, ["", "p0", "p1"]), (2, ["", "p0", "p1"]),
    ]  # fmt: skip
    assert merged.steps[2].values["loss", ""] == [1.5] and merged.steps[2].head["number"] == 2
    assert [o.sources for o in merged.operators[1]] == [(), (), ((1, 0),)]
    assert merged.calls[7].head["step"] == 1


def test_a_round_in_which_one_side_has_another_parameter_differs() -> None:
    whole = RunNumbers({1: step_of_part(1, 1, 0.5)})
    assert find_first_differing_round(whole, whole) == 0
    assert find_first_differing_round(whole, RunNumbers({1: step_of_part(1, 1, 0.25)})) == 1
    assert find_first_differing_round(whole, RunNumbers({1: step_of_part(2, 1, 0.5)})) == 1, "named otherwise"


def test_no_rounds_without_a_backward_pass_or_with_steps_that_were_not_kept() -> None:
    assert find_rounds(RunNumbers({1: step_of_part(1, 0, 0.0)}), 1) is None
    assert find_rounds(RunNumbers({1: step_of_part(1, 1, 0.0)}), 2) is None
    assert find_rounds(RunNumbers(), 0) is None


# --- parameters that are padded
def first_step(rows: int, columns: int = 30, others: int = 3) -> RunNumbers:
    shapes = {"words": [rows, columns], **{f"p{n}": [2] for n in range(others)}}
    words = np.zeros((rows, columns))
    words[:40, :30] = np.random.default_rng(1).normal(size=(40, 30))
    values = {("parameter", name): [1.0, 2.0] for name in shapes if name != "words"}
    whole = take_all_or_sampled_numbers(torch.as_tensor(words))
    return RunNumbers({1: record({**values, ("parameter", "words"): whole}, shapes=shapes)})


def test_a_padded_parameter_is_compared_by_its_sum() -> None:
    a, b = first_step(40), first_step(64)
    assert len(a.steps[1].values["parameter", "words"]) != len(b.steps[1].values["parameter", "words"])
    names = find_padded_parameters(a, b)
    assert names == {"words"}
    one, other = (replace_padded_parameters_by_sums(run, names).steps[1].values for run in (a, b))
    assert np.allclose(one["parameter", "words"], other["parameter", "words"]) and one["parameter", "p0"].size == 2
    assert find_padded_parameters(a, a) == frozenset()


def test_another_model_is_not_padded() -> None:
    a = first_step(40)
    assert not find_padded_parameters(a, first_step(64, 32)), "in two dimensions"
    assert not find_padded_parameters(first_step(40, others=1), first_step(64, others=1)), "half of all"
    moved = first_step(64)
    moved.steps[1].values["parameter", "words"][:] += 1.0
    assert not find_padded_parameters(a, moved), "with another sum"
    assert not find_padded_parameters(a, RunNumbers()), "without a first step"


# --- draws
NOISE = np.random.default_rng(0).standard_normal((8, 6))


def draw(line: int, values: object, own: bool = False) -> OperatorSummary:
    return summary("aten.randn", line, values, draws_from="own generator" if own else "default generator")


def test_a_line_that_draws_on_one_side_only_comes_before_an_order_that_is_drawn_ahead() -> None:
    a = [draw(3, NOISE[0], own=True), draw(7, NOISE[1]), summary(f"{INPUT_OF}Net", 9, NOISE[2])]
    b = [draw(3, NOISE[0], own=True), draw(3, NOISE[3], own=True), summary(f"{INPUT_OF}Net", 9, NOISE[4])]
    told = explain_by_random_call_counts(record({}, random="b"), record({}, random="a"), b, a)
    assert told is not None and told.line == 7


def test_an_order_that_is_drawn_ahead_is_no_cause_where_models_are_given_the_same() -> None:
    a = [draw(3, NOISE[0], own=True), summary(f"{INPUT_OF}Net", 9, NOISE[2])]
    b = [draw(3, NOISE[0], own=True), draw(3, NOISE[3], own=True), a[-1]]
    records = record({}, random="a"), record({}, random="b")
    assert explain_by_random_call_counts(*records, b, a) is None
    other = [*b[:2], summary(f"{INPUT_OF}Net", 9, NOISE[4])]
    told = explain_by_random_call_counts(*records, other, a)
    assert told is not None and told.line == 3
    evaluated = [summary(f"{kind}Net", 12, NOISE[4]) for kind in (INPUT_OF, RESULT_OF)]
    assert explain_by_random_call_counts(*records, [*b[:2], *evaluated, a[-1]], a) is None
    calls = record({}, random="a", kind="call"), record({}, random="b", kind="call")
    assert explain_by_random_call_counts(*calls, [*b[:2], *evaluated, a[-1]], a) is not None


def test_as_many_numbers_drawn_by_another_operator_are_no_other_draws() -> None:
    a, b = [draw(3, NOISE[0])], [replace(draw(9, NOISE[0]), name="aten.native_dropout")]
    assert explain_by_random_call_counts(record({}, random="a"), record({}, random="a"), b, a) is None
    assert explain_by_random_call_counts(record({}, random="b"), record({}, random="a"), b, a) is not None


def test_weights_that_are_drawn_and_written_over_are_no_other_draws() -> None:
    fill, others = replace(draw(5, NOISE[0]), name="aten.uniform_.default"), [draw(3, NOISE[1])]
    records = record({}, random="b"), record({}, random="a")
    assert explain_by_random_call_counts(*records, [*others, fill], others) is None
    assert explain_by_random_call_counts(*records, [fill, draw(3, NOISE[2])], others) is not None, (
        "moves what comes next"
    )
    used = [*others, fill, summary("aten.mm", 6, NOISE[2], 1)]
    assert explain_by_random_call_counts(*records, used, others) is not None


# --- gradients that are scaled
def clipped(scale: float, unscaled_first: bool) -> list[OperatorSummary]:
    gradient = NOISE[0] * scale
    made = [summary("aten.mm", 2, gradient, phase=f.BACKWARD)]
    if unscaled_first:
        made.append(summary("aten.div_.Tensor", 4, gradient / scale, 0))
        made.append(summary("aten.linalg_vector_norm", 5, [np.linalg.norm(NOISE[0])], 1))
        made.append(summary("aten.mul_.Tensor", 5, NOISE[0] / np.linalg.norm(NOISE[0]), 1))
        return made
    made.append(summary("aten.linalg_vector_norm", 5, [np.linalg.norm(gradient)], 0))
    made.append(summary("aten.mul_.Tensor", 5, gradient / np.linalg.norm(gradient), 0))
    made.append(summary("aten.div_.Tensor", 6, gradient / np.linalg.norm(gradient) / scale, 2))
    return made


def test_gradients_clipped_before_the_program_itself_unscales_them() -> None:
    told = explain_clipping_before_unscaling(clipped(1024, False), clipped(1, False), True)
    assert told is not None and told.line == 5 and "side B" in told.why
    told = explain_clipping_before_unscaling(clipped(1, False), clipped(1024, False), True)
    assert told is not None and told.line == 5 and "side A" in told.why
    assert explain_clipping_before_unscaling(clipped(1024, False), clipped(1, False), False) is None  # only looked at
    assert explain_clipping_before_unscaling(clipped(1024, True), clipped(1, True), True) is None
    assert explain_clipping_before_unscaling(clipped(1, False), clipped(1, False), True) is None


# --- what is recomputed
def test_a_write_that_is_repeated_by_a_recomputation_is_named_and_a_faithful_one_is_not() -> None:
    once = [summary("aten.mul_.Tensor", 3, NOISE[0]), summary("aten.mm", 4, NOISE[1], phase=f.BACKWARD)]
    again = replace(summary("aten.mul_.Tensor", 3, NOISE[2], phase=f.BACKWARD), is_recomputed=True)
    told = explain_second_write([*once, again], once)
    assert told is not None and (told.line, "side B" in told.why) == (3, True)
    assert explain_second_write([*once, replace(again, results=once[0].results)], once) is None
    assert explain_second_write([*once, again], [*once, again]) is None
    count = [replace(once[0], results=summary("", 0, 1).results), replace(again, results=summary("", 0, 2).results)]
    assert explain_second_write(count, count[:1]) is None


def test_a_forward_pass_inside_of_a_backward_pass_is_a_recomputation() -> None:
    seen: list[bool] = []

    def part(x: Any) -> Any:
        with torch.no_grad():
            seen.append(is_recomputing())
        y = x.sin()
        if y.requires_grad:
            y.register_hook(lambda gradient: seen.append(is_recomputing()))
        return y

    for reentrant in (False, True):
        seen.clear()
        x = torch.ones(3, requires_grad=True)
        checkpoint(part, x, use_reentrant=reentrant).sum().backward()
        assert sorted(seen) == [False, False, True], (reentrant, seen)
    seen.clear()
    part(torch.ones(3, requires_grad=True)).sum().backward()
    assert seen == [False, False]


# --- what is compared
def untrained_names(values: ModelValues, model: nn.Module, step: int) -> set[str]:
    _, found = values.name_parameters_and_buffers(list(model.parameters()), step)
    return set(found)


def test_lazy_layers_that_never_saw_data_are_left_out() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.LazyLinear(3))
    values = ModelValues(SimpleNamespace(root_models={1: lambda: model}))  # type: ignore[arg-type]
    names, _ = values.name_parameters_and_buffers(list(model[0].parameters()), 1)
    assert sorted(names.values()) == ["0.bias", "0.weight"]
    assert values.list_tied_names_and_assigning_lines(names) == ({}, {})
    held = values.digest_values_by_model_class()
    model(torch.ones(1, 2))
    assert held.keys() == {"Sequential"} and held != values.digest_values_by_model_class()


class Student(nn.Linear):
    """A class of its own, so that other tests' models are no part of this."""

    def __init__(self) -> None:
        super().__init__(3, 2)
        self.only_in_this_test = nn.Parameter(torch.ones(2))


def test_what_is_written_into_a_model_that_is_never_called_is_compared() -> None:
    student = Student()
    teacher, frozen = copy.deepcopy(student), nn.Linear(3, 2)
    values = ModelValues(SimpleNamespace(root_models={0: lambda: student, 1: lambda: frozen}))  # type: ignore[arg-type]
    assert not untrained_names(values, student, 1)
    teacher.only_in_this_test.data.mul_(0.5)  # .data leaves no trace in the version of the parameter
    assert untrained_names(values, student, 2) == {"only_in_this_test of a model that is not called"}
    frozen.weight.data.add_(1)
    assert "Linear#1.weight" in untrained_names(values, student, 3)
    del teacher
    assert untrained_names(values, student, 4) == {"Linear#1.weight"}


def test_names_do_not_depend_on_the_order_in_which_models_are_called() -> None:
    one, other = nn.Linear(2, 2), nn.Linear(2, 2)
    held = [*one.parameters(), *other.parameters()]
    names = []
    for roots in ({0: lambda: one, 1: lambda: other}, {0: lambda: other, 1: lambda: one}):
        values = ModelValues(SimpleNamespace(root_models=roots))  # type: ignore[arg-type]
        names.append([values.name_parameters_and_buffers(held, 3)[0][id(p)] for p in held])
    assert names[0] == names[1] == ["weight", "bias", "Linear#1.weight", "Linear#1.bias"]


def test_weights_that_lie_in_what_an_optimizer_holds_are_trained() -> None:
    model, other = nn.Linear(2, 2), nn.Linear(2, 2)
    vector = nn.Parameter(torch.zeros(4))
    model.weight.data = vector.data.view(2, 2)
    values = ModelValues(SimpleNamespace(root_models={0: lambda: model}))  # type: ignore[arg-type]
    for held, trained in (
        ([vector, model.bias], [model.weight, model.bias]),
        ([model.bias, model.weight], [model.bias, model.weight]),
        ([other.bias], [other.bias]),
    ):
        found = values.list_trained_parameters(SimpleNamespace(param_groups=[{"params": held}]))
        assert list(map(id, found)) == list(map(id, trained))


def test_parameters_in_the_same_places_are_the_same_if_they_hold_about_the_same() -> None:
    x, y = NOISE[0], NOISE[1]
    a = RunNumbers(steps={1: record({("parameter", "conv.weight"): x, ("gradient", "conv.weight"): y})})
    b = RunNumbers(steps={1: record({("parameter", "parameter 0"): 1.01 * x, ("gradient", "parameter 0"): y})})
    assert set(align_parameter_names(a, b).steps[1].values) == set(a.steps[1].values)
    others = RunNumbers(steps={1: record({("parameter", "parameter 0"): -x})})
    assert set(align_parameter_names(a, others).steps[1].values) == {("parameter", "parameter 0")}


def test_averages_that_differ_are_a_first_change() -> None:
    one, other = (RunNumbers(steps={7: record({("buffer", "mean"): [1, each]})}) for each in (2, 3))
    found = find_first_step_with_differing_buffers(one, other)
    assert found is not None and found.step == 7
    assert find_first_step_with_differing_buffers(one, one) is None


def test_both_parts_of_complex_numbers_are_compared() -> None:
    assert take_all_or_sampled_numbers(torch.tensor([1 + 2j, 3 - 4j])) == [1, 2, 3, -4]
    assert take_all_or_sampled_numbers(torch.tensor([1 + 2j]).conj()) == [1, -2]


def test_a_view_that_depends_on_how_memory_lies_is_a_value_of_its_own() -> None:
    summarised: list[str] = []
    followed: list[Any] = []
    mode = Float64Mode(False, {}, {})
    mode.summarise = lambda operator, operands, results, drew: summarised.append(operator.name)
    mode.follow_views = lambda name, base, views: bool(followed.append(views))
    with mode:
        torch.ones(6).as_strided((2, 2), (1, 2))[0].neg()
        torch.ones(6).view(2, 3)
    assert "aten.as_strided.default" in summarised and not any("select" in name for name in summarised)
    assert len(followed) == 2


def test_who_made_a_value_is_followed_through_views_of_it() -> None:
    producers = ValueProducers()
    base = torch.ones(6)
    windows = base.as_strided((2, 3), (1, 1))
    producers.note(base, (1, 0), False)
    producers.note(windows, (2, 0), True)
    first = windows[0]
    producers.note_further_views("aten::unbind", windows, [first])
    assert [producers.find(each) for each in (base, windows, first)] == [(1, 0), (2, 0), (2, 0)]
    producers.note(base, (5, 0), False)  # written into: the views hold what this made
    assert [producers.find(each) for each in (base, windows, first)] == [(5, 0)] * 3


def test_memory_that_is_used_again_holds_nothing_of_what_was_freed() -> None:
    producers = ValueProducers()
    for number in range(50):
        producers.note(torch.ones(3), (number, 0), False)
    again = [torch.ones(3) for _ in range(100)]
    assert {producers.find(each) for each in again} == {NOT_OF_THIS_STEP}


def test_what_follows_on_a_step_begins_the_next_one() -> None:
    summaries = OperatorSummaries()
    site = OperatorSite(f.FORWARD, 0, (), False)
    weight, batch, loss = torch.ones(2), torch.ones(3), torch.ones(1)
    summaries.add("aten.sub_", site, [weight], [weight], "none")
    summaries.add("aten.rand", site, [], [batch], "default generator")
    summaries.add("aten.sum", site, [batch, weight], [loss], "none")
    assert summaries.count_up_to_writing([weight]) == 1
    assert summaries.count_up_to_writing([torch.ones(2)]) == 3
    head, sums = summaries.take(1)
    assert [row.name for row in head["operators"]] == ["aten.sub_"] and sums[:2] == [2.0, 2.0]
    assert [(row.name, row.sources) for row in summaries.rows] == [
        ("aten.rand", []), ("aten.sum", [NOT_OF_THIS_STEP, (0, 0)])
    ]  # fmt: skip
    summaries.add("aten.neg", site, [loss], [torch.ones(1)], "none")
    assert summaries.rows[-1].sources == [(1, 0)] and summaries.take(3)[1][0] == 3.0


@pytest.mark.parametrize(("text", "wide"), [("float64", True), ("x.dtype", False)])
def test_random_numbers_are_drawn_in_the_dtype_that_the_program_asks_for(text: str, wide: bool) -> None:
    """A float32 tensor is one of float64 in this mode: its dtype, handed on, means float32."""
    x = torch.ones(2, dtype=torch.float64)
    draws = []
    for mode in (nullcontext(), Float64Mode(True, {}, {})):
        torch.manual_seed(0)
        with mode:
            if text == "float64":
                draws.append(torch.rand(3, dtype=torch.float64))
            else:
                draws.append(torch.rand(3, dtype=x.dtype))
    assert torch.equal(*draws) == wide


def test_dimensions_in_another_order_that_become_one_are_a_value_of_their_own() -> None:
    summarised: list[str] = []
    mode, producers = Float64Mode(False, {}, {}), ValueProducers()
    mode.summarise = lambda operator, operands, results, drew: summarised.append(operator.name)
    mode.follow_views = producers.note_further_views
    image = torch.ones(2, 3, 4, 4).contiguous(memory_format=torch.channels_last)
    del summarised[:]
    with mode:
        turned = image.permute(0, 2, 3, 1)
        turned.permute(0, 3, 1, 2).permute(0, 2, 3, 1)[None]
        assert summarised == []
        turned.view(2, -1)
    assert summarised == ["aten.view.default"]


def test_where_each_side_has_an_operator_of_its_own_both_are_told() -> None:
    a = RunNumbers(rank_operators={1: [summary("aten.mul", 3, NOISE[0]), summary("aten.sum", 4, NOISE[1])]})
    b = RunNumbers(rank_operators={1: [summary("aten.lerp", 8, NOISE[2]), summary("aten.sum", 4, NOISE[3])]})
    told = explain_difference(None, None, a, b, 1)
    assert told is not None and {3, 8} == {told.line, int(told.why.rpartition(":")[2])}


# --- backward passes
GRADIENT = ("gradient", "scale")


def test_a_parameter_without_a_gradient_is_named_at_the_backward_pass_of_its_side() -> None:
    a, b = record({GRADIENT: [1.0]}), record({})
    of_both = replace(summary("aten.mm", 3, NOISE, phase=f.BACKWARD), differentiated_at=(("a.py", 9),))
    of_b = replace(of_both, differentiated_at=(("a.py", 12),))
    told = explain_missing_gradients(b, a, [of_both, of_b], [of_both])
    assert told is not None and told.line == 12 and told.why == "on side B scale gets no gradient"
    assert explain_missing_gradients(b, a, [of_both], [of_both]) is None, "a frozen parameter: no line of its own"
    assert explain_missing_gradients(a, a, [of_b], [of_both]) is None


def test_a_backward_pass_that_goes_on_through_what_the_other_side_detaches_is_named() -> None:
    forward = [summary("aten.mm", 3, NOISE), summary("aten.relu", 5, NOISE * 2)]
    ends, goes_on = (
        replace(summary("aten.mm", line, NOISE, phase=f.BACKWARD), differentiated_at=(("a.py", 7),)) for line in (5, 3)
    )
    told = explain_gradients_taken_further([*forward, ends, goes_on], [*forward, ends])
    assert told is not None and told.line == 7 and told.why == "on side B alone this backward pass goes through a.py:3"
    assert explain_gradients_taken_further([*forward, ends], [*forward, ends]) is None
    run_twice = [*forward, forward[0], ends]
    assert explain_gradients_taken_further([*forward, ends, goes_on], run_twice) is None, "not the same forward pass"


def test_numbers_drawn_anew_by_a_recomputation_are_named_though_as_many_are_drawn() -> None:
    drawn = draw(4, NOISE)
    head = {"random": "the same", "lines": {}}
    for again, is_named in ((NOISE * 2, True), (NOISE, False)):
        recomputed = replace(draw(4, again), phase=f.BACKWARD, is_recomputed=True, callers=(("a.py", 8),))
        told = explain_by_random_call_counts(record({}, **head), record({}, **head), [drawn, recomputed], [drawn])
        assert (told is not None) == is_named
        assert told is None or (told.line == 8 and "does not restore the random states" in told.why)


def test_a_line_that_is_reached_more_often_is_named_in_the_loop_of_the_forward_pass() -> None:
    def called(name: str, phase: int, *lines: int) -> OperatorSummary:
        (first, *callers), file = lines, "a.py"
        return replace(summary(name, first, NOISE, phase=phase), callers=tuple((file, line) for line in callers))

    forward = called("aten.mm", f.FORWARD, 4, 20, 30)
    average = called("aten.lerp_", f.BETWEEN, 12, 21, 30)
    assert find_line_in_loop_of_forward_pass(average, [forward, average]) == ("a.py", 21)
    beside = called("aten.norm", f.BETWEEN, 21, 30)
    assert find_line_in_loop_of_forward_pass(beside, [forward, beside]) == ("a.py", 21)
    assert find_line_in_loop_of_forward_pass(average, []) == ("a.py", 30), "the outermost, where nothing is shared"

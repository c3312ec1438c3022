"""What `samerun check --neutral` pairs and names: calls, ties, recomputed parts, parts of a batch, settings."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from samerun.check.neutral.backward_pass_differences import (
    explain_recomputation,
    explain_scaler_update_between_microbatches,
    explain_uneven_steps,
    find_varying_factor,
)
from samerun.check.neutral.call_alignment import align_calls, compare_uses_of_results
from samerun.check.neutral.difference_explanation import (
    explain_difference,
    find_loss_scales,
)
from samerun.check.neutral.lost_bits import find_lost_whole_numbers
from samerun.check.neutral.run_numbers import NumberRecord, OperatorSummary, RunNumbers, find_caller_of_one_side
from samerun.check.neutral.runs_of_sides import (
    FirstChange,
    NotComparable,
    add_tied_parameters,
    describe_what_was_compared,
    explain_lost_tie,
    find_first_differing_call,
    list_parameter_names,
    require_same_names_and_sizes_at_first_change,
)
from samerun.check.neutral.setting_differences import explain_by_optimizer_settings, list_assignments_to_string_key
from samerun.check.neutral.side_choice import OddOperatorOfSide, choose_side
from samerun.check.neutral.value_correspondence import find_first_noncorresponding_operator, mark_corresponding
from samerun.record.config import CUT_OFF, RESCALED
from samerun.record.trace import format as f
from samerun.record.trace.reader import SourceLocation
from samerun.record.watching import stack_frames
from samerun.record.watching.run_numbers.model_values import ModelValues
from samerun.record.watching.run_numbers.tensor_numbers import (
    name_class_without_wrappers,
    read_closures,
    summarise_as_count_and_four_sums,
)
from samerun.record.watching.run_numbers.value_producers import fills_its_memory
from samerun.record.watching.torch_internals import is_recomputing

NOISE = np.random.default_rng(0).standard_normal((8, 6))


def summary(name: str, line: int, values: object, *sources: int, phase: int = f.FORWARD) -> OperatorSummary:
    array = np.asarray(values, np.float64)
    results = (("float64", array.shape, np.array(summarise_as_count_and_four_sums(torch.as_tensor(array)))),)
    return OperatorSummary(name, phase, SourceLocation("a.py", line, ""), tuple((at, 0) for at in sources), results)


def step(values: dict[tuple[str, str], Any] | None = None, **head: object) -> NumberRecord:
    arrays = {key: np.asarray(value, np.float64) for key, value in (values or {}).items()}
    return NumberRecord({"number": 1, **head}, arrays, dict.fromkeys(arrays, "float32"))


def call(number: int, of_step: int, *outputs: object) -> NumberRecord:
    values = {("output", str(at)): np.asarray(each, np.float64).reshape(-1) for at, each in enumerate(outputs)}
    sums = [summarise_as_count_and_four_sums(torch.as_tensor(each)) for each in values.values()]
    return NumberRecord({"number": number, "step": of_step, "model": "Net", "sums": sums}, values,
                        dict.fromkeys(values, "float32"))  # fmt: skip


def run_of_calls(*calls: NumberRecord) -> RunNumbers:
    return RunNumbers(calls={each.number: each for each in calls})


# --- calls of models without gradients
def test_calls_are_paired_within_their_step() -> None:
    a = run_of_calls(call(1, 0, NOISE, 1.0), call(2, 1, NOISE + 1, 2.0))
    b = run_of_calls(*(call(at + 1, 0, NOISE[2 * at : 2 * at + 2], 1.0) for at in range(4)), call(5, 1, NOISE + 1, 2.0))
    calls = align_calls(a, b)
    assert calls.uncompared == ()
    assert find_first_differing_call(calls.apply(a), calls.apply(b)) is None
    other = run_of_calls(*list(b.calls.values())[:3], call(4, 0, NOISE[6:] * 2, 1.0), b.calls[5])
    found = find_first_differing_call(calls.apply(a), align_calls(a, other).apply(other))
    assert found is not None and (found.number, found.step) == (1, 1)


def test_calls_whose_results_have_other_sizes_are_named() -> None:
    a, b = run_of_calls(call(1, 0, NOISE)), run_of_calls(call(1, 0, NOISE[:2]))
    assert align_calls(a, b).uncompared == ("Net before step 1",)
    one = run_of_calls(call(1, 0, 2.5)), run_of_calls(call(1, 0, 2.0), call(2, 0, 3.0))
    assert align_calls(*one).uncompared == ()  # a loss: the mean of each part
    assert align_calls(a, RunNumbers()).apply(a).calls == {}


def test_of_calls_with_other_sizes_those_that_have_the_same_are_compared() -> None:
    def run(size: int, last: Any) -> RunNumbers:
        inner = NOISE.reshape(-1)[: 2 * size]
        return run_of_calls(call(1, 0, inner[:size]), call(2, 0, inner[size:]), call(3, 0, last))

    padded, packed = run(4, NOISE[0]), run(3, NOISE[0])
    calls = align_calls(padded, packed)
    assert calls.uncompared and not calls.ends_uncompared
    assert find_first_differing_call(calls.apply(padded), calls.apply(packed)) is None
    found = find_first_differing_call(calls.apply(padded), calls.apply(run(3, NOISE[0] + 1)))
    assert found is not None and found.number == 3
    assert align_calls(padded, run(3, NOISE[0][:2])).ends_uncompared


def test_where_nothing_was_compared_nothing_is_the_same() -> None:
    assert describe_what_was_compared(4, 2) == "4 optimizer steps" and "2 calls" in describe_what_was_compared(0, 2)
    with pytest.raises(NotComparable, match="neither side makes optimizer steps"):
        describe_what_was_compared(0, 0)


# --- tied parameters
def test_a_tie_that_one_side_loses_is_compared_and_named() -> None:
    tied = RunNumbers(steps={1: step({("parameter", "e"): [1.0], ("gradient", "e"): [3.0]}, tied={"head": "e"})})
    values: dict[tuple[str, str], Any] = {("parameter", "e"): [1.0], ("parameter", "head"): [1.0]}
    own = RunNumbers(steps={1: step(values, tied={})})
    whole = add_tied_parameters(tied, list_parameter_names(tied) | list_parameter_names(own)).steps[1]
    assert whole.values["parameter", "head"] == [1.0] and whole.values["gradient", "head"] == [3.0]
    assert add_tied_parameters(tied, {"e"}).steps[1].values == tied.steps[1].values
    found = explain_lost_tie(tied, own)
    assert found is not None and found.why.startswith("head is e itself on side A") and not found.line
    assert explain_lost_tie(tied, tied) is None


@pytest.mark.parametrize(
    ("of_tied", "of_own", "line"),
    [(["n.py:3"], [], 3), (["n.py:3"], ["n.py:3", "n.py:4"], 4), (["n.py:2", "n.py:3"], ["n.py:2"], 3)],
)
def test_a_lost_tie_is_named_where_it_is_made_or_cut(of_tied: list[str], of_own: list[str], line: int) -> None:
    values: dict[tuple[str, str], Any] = {("parameter", "e"): [1.0]}
    tied = RunNumbers(steps={1: step(values, tied={"head": "e"}, given={"head": of_tied})})
    own = RunNumbers(steps={1: step({**values, ("parameter", "head"): [1.0]}, tied={}, given={"head": of_own})})
    for one, other in ((tied, own), (own, tied)):
        found = explain_lost_tie(one, other)
        assert found is not None and (found.file, found.line) == ("n.py", line)


# --- what is recomputed
def test_a_recomputation_that_gives_other_values_is_named_where_they_first_differ() -> None:
    forward = [summary("aten.mm", 3, NOISE[0]), summary("aten.div", 4, NOISE[1], 0)]
    again = [replace(o, phase=f.BACKWARD, is_recomputed=True) for o in forward]
    other = replace(again[1], results=summary("", 0, NOISE[2]).results)
    told = explain_recomputation(step(), step(), [*forward, again[0], other], forward)
    assert told is not None and (told.line, "side B" in told.why) == (4, True)
    assert explain_recomputation(step(), step(), [*forward, *again], forward) is None


def test_a_recomputed_part_that_gets_no_gradients_is_named() -> None:
    a = step({("gradient", "e"): [1.0]}, lines={})
    b = step({}, lines={CUT_OFF: {"m.py:7": 1}})
    told = explain_recomputation(b, a, [], [])
    assert told is not None and (told.file, told.line) == ("m.py", 7) and "e gets none" in told.why
    assert explain_recomputation(step({("gradient", "e"): [1.0]}, lines=b.head["lines"]), a, [], []) is None


class OwnCheckpoint(torch.autograd.Function):
    """Recomputes in its own backward."""

    @staticmethod
    def forward(ctx: Any, part: Any, x: Any) -> Any:
        ctx.part, ctx.x = part, x
        return part(x)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        with torch.enable_grad():
            x = ctx.x.detach().requires_grad_()
            ctx.part(x).backward(*grads)
        return None, x.grad


@pytest.mark.parametrize("own", [False, True])
def test_what_an_own_function_runs_again_is_recomputed(own: bool) -> None:
    seen: list[bool] = []

    def part(x: Any) -> Any:
        seen.append(is_recomputing())
        return x.sin()

    x = torch.ones(2, requires_grad=True)
    made = OwnCheckpoint.apply(part, x) if own else checkpoint(part, x, use_reentrant=True)  # type: ignore[no-untyped-call]
    made.sum().backward()
    assert seen == [False, True]


# --- parts of a batch
def test_a_denominator_of_each_part_is_named() -> None:
    def part(words: int, at: int) -> list[OperatorSummary]:
        loss = summary("aten.nll_loss", 3, 6.0)
        return [
            loss,
            summary("aten.div.Tensor", 5, 6.0 / words, at),
            summary("aten.div.Tensor", 6, 1.5 / words, at + 1),
        ]

    varying = find_varying_factor([*part(3, 0), *part(5, 3)])
    assert varying is not None and varying.location.line == 5
    assert find_varying_factor([*part(3, 0), *part(3, 3)]) is None


def test_a_scale_that_changes_between_parts_is_named() -> None:
    told = explain_scaler_update_between_microbatches(step(lines={RESCALED: {"t.py:9": 3}}), step(lines={}))
    assert told is not None and told.line == 9
    assert (
        explain_scaler_update_between_microbatches(
            step(lines={RESCALED: {"t.py:9": 3}}), step(lines={RESCALED: {"t.py:9": 1}})
        )
        is None
    )


def test_a_first_step_that_comes_before_its_parts_is_named() -> None:
    def run(*backwards: int) -> dict[int, NumberRecord]:
        return {at: step(backwards=count, line="t.py:4") for at, count in enumerate(backwards, 1)}

    told = explain_uneven_steps(run(1, 4, 4), run(1, 1, 1))
    assert told is not None and told.line == 4
    assert explain_uneven_steps(run(4, 4, 2), run(1, 1, 1)) is None  # what is left over at the end of an epoch


# --- settings of optimizers
def test_the_line_that_made_an_optimizer_or_that_sets_its_groups_is_named(tmp_path: Path) -> None:
    program = tmp_path / "train.py"
    program.write_text("for group in optimizer.param_groups:\n    group['lr'] = rate()\noptimizer.step()\n")

    def record(eps: float, lr: float, lr_made: float) -> NumberRecord:
        made = {"line": "m.py:5", "settings": {"eps": eps.hex(), "lr": lr_made.hex()}}
        return step(settings={"eps": eps.hex(), "lr": lr.hex()}, made=made, line=f"{program}:3", optimizer="AdamW")

    told = explain_by_optimizer_settings(record(1e-6, 0.1, 0.1), record(1e-8, 0.1, 0.1), [])
    assert told is not None and (told.file, told.line) == ("m.py", 5)
    told = explain_by_optimizer_settings(record(1e-8, 0.2, 0.1), record(1e-8, 0.3, 0.1), [])
    assert told is not None and (told.file, told.line) == (str(program), 2)
    program.write_text(program.read_text() * 2)
    assert len(list_assignments_to_string_key([str(program), "nowhere.py"], "lr")) == 2
    told = explain_by_optimizer_settings(record(1e-8, 0.2, 0.1), record(1e-8, 0.3, 0.1), [])
    assert told is not None and told.line == 3  # which of two lines set it is not known


# --- values
def test_arithmetic_in_another_order_corresponds_and_moved_elements_do_not() -> None:
    whole, turned = NOISE.reshape(4, 2, 6), NOISE.reshape(4, 2, 6).transpose(1, 0, 2)
    a = [summary("aten.mm.default", 1, whole), summary("aten.tanh.default", 2, NOISE + 2, 0)]
    b = [summary("aten.mm.default", 1, turned), summary("aten.tanh.default", 2, NOISE + 3, 0)]
    odd = find_first_noncorresponding_operator(b, a)
    assert odd is not None and odd.operator.location.line == 2
    odd = find_first_noncorresponding_operator([replace(b[0], name="aten.index.Tensor"), b[1]], a)
    assert odd is not None and odd.operator.location.line == 1


def test_a_loss_is_named_where_no_batch_is_split_and_a_number_for_the_log_is_not() -> None:
    def run(penalty: float, log: float) -> list[OperatorSummary]:
        return [
            summary("aten.mul.Tensor", 1, log), summary("aten.mul.Tensor", 2, penalty),
            summary("aten.mm", 3, NOISE * penalty, 1, phase=f.BACKWARD),
        ]  # fmt: skip

    odd = find_first_noncorresponding_operator(run(0.3, 2.5), run(0.7, 1.5), are_losses_whole=True)
    assert odd is not None and odd.operator.location.line == 2
    odd = find_first_noncorresponding_operator(run(0.3, 2.5), run(0.7, 1.5))
    assert odd is not None and odd.operator.location.line == 3


def test_the_line_that_hands_over_another_value_is_named() -> None:
    def layer(caller: int, value: Any) -> OperatorSummary:
        return replace(summary("aten.mm", 20, value), callers=(("a.py", caller), ("a.py", 99)))

    a, b = [layer(3, NOISE[0]), layer(3, NOISE[1])], [layer(5, NOISE[0]), layer(5, NOISE[2])]
    one, other = (RunNumbers(operators={1: o}, rank_operators={1: o}) for o in (a, b))
    told = explain_difference(step(), step(), one, other, 1)
    assert told is not None and told.line == 5
    elsewhere = [replace(each, location=SourceLocation("a.py", 21, "")) for each in a]
    assert find_caller_of_one_side(b[1], b, elsewhere) is None
    trained = replace(summary("aten.add_", 40, 1.0, phase=f.OPTIMIZER), callers=(("a.py", 5), ("a.py", 99)))
    assert find_caller_of_one_side(b[1], [*b, trained], a) is None  # the whole training is called from there


def test_the_operator_that_one_side_alone_puts_before_a_common_line_is_named() -> None:
    """Side A takes a root that side B leaves out, so that B goes on with a value that A has too."""
    a = [summary("aten.add", 1, NOISE[0]), summary("aten.sqrt", 2, NOISE[1], 0), summary("aten.mul", 9, NOISE[3], 1)]
    b = [summary("aten.add", 5, NOISE[0]), summary("aten.mul", 9, NOISE[2], 0)]
    told = explain_difference(step(), step(), *(RunNumbers(rank_operators={1: o}, operators={1: o}) for o in (a, b)), 1)
    assert told is not None and told.line == 5


def test_of_two_ways_in_one_phase_that_of_side_b_is_named() -> None:
    def side(name: str, line: int, value: Any, before: int) -> OddOperatorOfSide:
        operator = summary("aten.mul", line, value, phase=f.BETWEEN)
        return OddOperatorOfSide((f.BETWEEN, before), name, [operator], operator)

    assert choose_side([side("B", 7, NOISE[0], 9), side("A", 3, NOISE[1], 4)]).side == "B"
    assert choose_side([side("B", 7, NOISE[0], 9), side("A", 7, NOISE[1], 4)]).side == "A"


def test_what_a_scaled_loss_makes_larger_corresponds_until_something_is_added() -> None:
    def run(scale: float, penalty: float) -> list[OperatorSummary]:
        gradient, scaled = NOISE[0] * scale, summary("aten.mul.Tensor", 2, 0.7 * scale, 0)
        return [
            summary("aten.nll_loss", 1, 0.7), scaled, summary("aten.mm", 3, gradient, 1, phase=f.BACKWARD),
            summary("aten.add_", 4, gradient + penalty * NOISE[1], 2, phase=f.BETWEEN),
        ]  # fmt: skip

    a, b = run(1.0, 0.1), run(256.0, 0.1)
    odd = find_first_noncorresponding_operator(b, a, True, find_loss_scales(b, a)[0])
    assert odd is not None and odd.operator.location.line == 4
    b = run(256.0, 25.6)
    assert find_first_noncorresponding_operator(b, a, True, find_loss_scales(b, a)[0]) is None


def test_a_fused_optimizer_that_writes_other_parameters_does_not_correspond() -> None:
    """Its own state is that of the other side, and nothing uses either."""
    state = summary("", 0, NOISE[3]).results
    one, other = (summary("aten._fused_adam_", 9, NOISE[at]) for at in (1, 2))
    one, other = (replace(each, results=each.results + state) for each in (one, other))
    odd = find_first_noncorresponding_operator([one], [other])
    assert odd is not None and odd.operator is one


def test_what_is_computed_of_results_of_other_sizes_is_compared() -> None:
    def run(logits: Any, taken: Any, line: int = 3) -> list[OperatorSummary]:
        return [summary("result of Net", 2, logits), summary("aten.softmax", line, taken, 0)]

    a = run(NOISE, NOISE[0] + 1)
    assert compare_uses_of_results(a, run(NOISE[0], NOISE[0] + 1)) == "corresponding"
    assert compare_uses_of_results(a, run(NOISE[0], NOISE[1] + 1)) == "different"
    assert compare_uses_of_results(a, run(NOISE[0], NOISE[1] + 1, line=4)) == "unknown"
    assert compare_uses_of_results(a[:1], run(NOISE[0], NOISE[0] + 1)) == "unknown"


def test_positions_that_a_coarse_format_cannot_hold_are_named() -> None:
    def run(values: Any, dtype: str) -> list[OperatorSummary]:
        ((_, shape, sums),) = summary("", 0, values).results
        cast = replace(summary("aten._to_copy.default", 5, values), results=((dtype, shape, sums),))
        return [cast, summary("aten.mm.default", 5, NOISE, 0)]

    positions = np.arange(300.0)
    coarse = np.where(positions > 256, positions // 2 * 2, positions)
    told = find_lost_whole_numbers(run(coarse, "bfloat16"), run(positions, "float64"))
    assert told is not None and (told.line, told.operator) == (5, "aten._to_copy.default")
    years, rounded = positions + 1900, (positions + 1900) // 8 * 8
    assert find_lost_whole_numbers(run(rounded, "bfloat16"), run(years, "float64")) is None  # autocast's own cast
    assert find_lost_whole_numbers(run(rounded, "bfloat16")[:1], run(years, "float64")) is not None
    assert find_lost_whole_numbers(run(rounded, "float32")[:1], run(years, "float64")) is None


def test_what_fills_its_memory_leaves_nothing_of_the_old_value() -> None:
    weight = nn.Linear(3, 2).weight.detach()
    assert fills_its_memory(weight) and not fills_its_memory(weight[0])


class Tied(nn.Module):
    """A head that shares the weights of its embedding, under a name of their own."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.head = nn.Embedding(4, 3), nn.Linear(3, 4, bias=False)
        self.head.weight = self.embedding.weight


def test_a_model_goes_by_its_own_class_inside_of_wrappers() -> None:
    assert name_class_without_wrappers(nn.DataParallel(nn.Tanh())) == "Tanh"
    assert name_class_without_wrappers(nn.Sequential(nn.Tanh())) == "Sequential"


def test_only_names_within_one_model_are_ties() -> None:
    one, other = Tied(), Tied()
    roots = {0: lambda: one, 1: lambda: other}
    values = ModelValues(SimpleNamespace(root_models=roots, thread=SimpleNamespace()))  # type: ignore[arg-type]
    names, _ = values.name_parameters_and_buffers([*one.parameters(), *other.parameters()], 1)
    prefix = "Tied#1."
    values.recorder.thread.inside_samerun = 0
    for weight in one.head.weight, one.embedding.weight:
        values.note_assignment(one.head, "weight", weight)
    tied, given = values.list_tied_names_and_assigning_lines(names)
    assert tied == {
        "head.weight": "embedding.weight",
        f"{prefix}head.weight": f"{prefix}embedding.weight",
    }
    lines = given.pop("head.weight")
    assert not given and len(lines) == 2 and all(line.startswith(f"{__file__}:") for line in lines)


def test_a_schedule_is_known_by_what_its_lambda_closes_over_and_made_by_the_call_that_gives_it() -> None:
    def make(steps: int) -> Any:
        def decay(step: int) -> float:
            return 1 - step / steps

        lines.append(stack_frames.find_user_line_that_passes({"steps"}).line)
        return decay

    lines: list[int] = []
    made = make(30)
    here = stack_frames.find_user_line().line - 1
    assert lines == [here] and read_closures([made, nn.Linear(1, 1)]) == {"steps": 30}


def test_parts_that_are_computed_at_a_line_of_their_own_add_up() -> None:
    whole = [summary("aten.mm", 3, NOISE)]
    parts = [summary("aten.mm", 9, NOISE[:5]), summary("aten.mm", 9, NOISE[5:])]
    assert mark_corresponding(parts, whole) == [True, True] and mark_corresponding(whole, parts) == [True]
    assert mark_corresponding(parts, [summary("aten.mm", 3, NOISE * 2)]) == [False, False]


def test_nothing_finite_corresponds_to_scores_that_are_masked() -> None:
    masked = NOISE.copy()
    masked[0] = -np.inf
    assert mark_corresponding([summary("aten.mm", 4, NOISE)], [summary("aten.masked_fill", 3, masked)]) == [False]
    assert mark_corresponding([summary("aten.where", 4, masked)], [summary("aten.masked_fill", 3, masked)]) == [True]
    turned = np.where(np.isfinite(masked), masked, np.inf)
    assert mark_corresponding([summary("aten.where", 4, turned)], [summary("aten.masked_fill", 3, masked)]) == [False]


def test_a_batch_without_its_padding_and_samples_one_by_one_correspond() -> None:
    padded = np.concatenate([NOISE[:3], np.zeros((2, 6)), NOISE[3:]])
    assert mark_corresponding([summary("aten.cat", 4, NOISE)], [summary("aten.copy_", 3, padded)]) == [True]
    assert mark_corresponding([summary("aten.cat", 4, NOISE)], [summary("aten.copy_", 3, padded + 0.1)]) == [False]
    loop = [summary("aten.nll_loss", 3, row) for row in NOISE]
    assert mark_corresponding([summary("aten.gather", 4, NOISE)], loop) == [True]
    assert mark_corresponding(loop, [summary("aten.gather", 4, NOISE)]) == [True] * 8
    assert mark_corresponding([summary("aten.gather", 4, 2 * NOISE)], loop) == [False]


def test_what_is_not_written_is_named_where_the_rest_is() -> None:
    weight, statistic = NOISE[0], NOISE[1]
    a = [summary("aten.add_.Tensor", 55, each, phase=f.BETWEEN) for each in (weight, statistic)]
    b = [summary("aten._foreach_add_.List", 50, weight, phase=f.BETWEEN),
         summary("aten.native_batch_norm.default", 32, NOISE[2])]  # fmt: skip
    one, other = (RunNumbers(operators={1: o}, rank_operators={1: o}) for o in (a, b))
    told = explain_difference(step(), step(), one, other, 1)
    assert told is not None and told.line == 50


def test_what_one_side_could_not_read_is_left_out_and_what_it_lacks_is_not() -> None:
    a = RunNumbers(steps={1: step({("parameter", "conv"): [1.0], ("parameter", "fc"): [2.0]})})
    b = RunNumbers(steps={1: step({("parameter", "fc"): [2.0]}, unread=["conv"])})
    first = FirstChange("step", 1, 1)
    require_same_names_and_sizes_at_first_change(a, b, first)
    with pytest.raises(NotComparable, match="conv is there on one side only"):
        require_same_names_and_sizes_at_first_change(
            a, RunNumbers(steps={1: step({("parameter", "fc"): [2.0]})}), first
        )


def test_what_a_side_makes_of_constants_for_its_own_way_is_not_the_culprit() -> None:
    def run(*own: OperatorSummary) -> list[OperatorSummary]:
        return [summary("aten.mm.default", 1, NOISE), *own]

    powers = summary("aten.pow.Scalar", 4, NOISE * 5, 1)
    a = run(summary("aten.mul.Tensor", 2, NOISE * 7, 0))
    b = run(summary("aten.arange.default", 3, NOISE * 3), powers, summary("aten.mm.default", 5, NOISE * 9, 0, 2))
    odd = find_first_noncorresponding_operator(b, a)
    assert odd is not None and odd.operator.location.line == 5
    # What both sides make in that size, as a mask, may itself be wrong.
    masks = [
        run(summary("aten.arange.default", 3, NOISE * 3), summary("aten.pow.Scalar", 4, NOISE * n, 1)) for n in (5, 6)
    ]
    odd = find_first_noncorresponding_operator(*masks)
    assert odd is not None and odd.operator.location.line == 4

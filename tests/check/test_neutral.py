"""`samerun check --neutral`: verdicts and lines on programs that are neutral and on those that are not."""

from __future__ import annotations

import json
import subprocess
import sys
import weakref
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from check_command import samerun
from repository_paths import ROOT
from torch.utils.checkpoint import checkpoint

from samerun.base.errors import SamerunError
from samerun.check.evidence.results import agree_as_printed
from samerun.check.neutral.lost_bits import find_losing_operator
from samerun.check.neutral.run_numbers import OperatorSummary, read_run_numbers
from samerun.check.neutral.value_correspondence import find_first_noncorresponding_operator
from samerun.check.variations.neutral_switches import parse_neutral_env_option, parse_neutral_option
from samerun.record.comparison.rounding import judge_item
from samerun.record.trace.reader import SourceLocation
from samerun.record.trace.run import RunTraces
from samerun.record.watching.run_numbers.float64_mode import Float64Mode, make_tensor_of_python_numbers_wide
from samerun.record.watching.run_numbers.hand_written_steps import HandWrittenSteps
from samerun.record.watching.run_numbers.model_values import ModelValues
from samerun.record.watching.run_numbers.shard_numbers import Shard, find_shard, take_share
from samerun.record.watching.run_numbers.tensor_numbers import take_all_or_sampled_numbers

PROGRAMS = ROOT / "tests/programs/neutral"
FEW = ("tie_lost_on_load", "mask_dropped", "clip_per_part")
"""Programs of which each shows another kind of evidence; all are run with the exhaustive tests."""
KEY = ("gradient", "weight")


def measure(*names: str) -> str:
    """Check programs with the tool, which ends with exit code 1 if a verdict is not right; what it printed."""
    tool = [sys.executable, str(ROOT / "tools/neutral_programs.py"), *names]
    done = subprocess.run(tool, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.slow
def test_what_is_not_neutral_is_wrong_at_its_line_and_its_twin_is_not() -> None:
    told = measure(*FEW)
    assert "LINE" not in told
    assert f"wrong: {len(FEW)} of {len(FEW)} verdicts, {len(FEW)} lines; neutral: {len(FEW)} of {len(FEW)}" in told


@pytest.mark.exhaustive
def test_every_program() -> None:
    told = measure(*(path.name for path in PROGRAMS.glob("*.py")))
    assert told.count("LINE") <= 3


@pytest.mark.slow
def test_the_report_of_a_switch_that_is_wrong(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text((PROGRAMS / "label_smoothing.py").read_text(encoding="utf-8"), encoding="utf-8")
    done = samerun(["check", "--neutral-env", "SIDE=a,b", "--json", "r.json", "--html", "r.html", "train.py"], tmp_path)
    report = json.loads((tmp_path / "r.json").read_text(encoding="utf-8"))
    assert (done.returncode, report["verdict"], report["cause"]) == (1, "different", None), done.stderr
    (result,) = report["neutral"]
    assert (result["outcome"], result["file"], result["step"]) == ("wrong", "train.py", 1)
    assert 28 <= result["line"] <= 32  # the two losses
    assert result["error_a_ulp"] < 100 < result["error_b_ulp"]
    assert [point["step"] for point in result["points"]] == [1, 2, 3, 4, 5]
    assert "wrong" in done.stdout and f"train.py:{result['line']}" in done.stdout
    page = (tmp_path / "r.html").read_text(encoding="utf-8")
    assert "Switches that should change nothing" in page and "polyline" in page


@pytest.mark.exhaustive
def test_another_interpreter_rounds_and_portable_takes_it_away(tmp_path: Path) -> None:
    """The other one is a script that starts this one with torch's plain kernels, as another torch may have others."""
    other = tmp_path / "other"
    other.write_text(f'#!/bin/sh\nATEN_CPU_CAPABILITY=default exec {sys.executable} "$@"\n', encoding="utf-8")
    other.chmod(0o755)
    text = "import torch\nx = torch.arange(512.0).reshape(64, 8).mul(0.37).frac()\n"
    text += "model = torch.nn.utils.skip_init(torch.nn.Linear, 8, 8)\n"
    text += "for p in model.parameters():\n    p.data.copy_(x.flatten()[:p.numel()].view_as(p))\n"
    text += "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n"
    text += "for step in range(2):\n    model(x).softmax(1).square().sum().backward()\n    optimizer.step()\n"
    (tmp_path / "train.py").write_text(text, encoding="utf-8")
    done = samerun(["check", "--neutral", f"python={other}", "--quiet", "--json", "-", "train.py"], tmp_path)
    (result,) = json.loads(done.stdout)["neutral"]
    assert (done.returncode, result["outcome"], result["line"]) == (0, "rounding", 8), result
    assert "inside samerun.portable() both sides give the same bits" in result["detail"]


@pytest.mark.exhaustive
def test_inside_a_compiled_region_the_node_is_named(tmp_path: Path) -> None:
    text = (PROGRAMS / "compiled/loses_gradient.py").read_text(encoding="utf-8")
    (tmp_path / "train.py").write_text(text, encoding="utf-8")
    done = samerun(["check", "--neutral", "compile", "--json", "r.json", "train.py"], tmp_path)
    (result,) = json.loads((tmp_path / "r.json").read_text(encoding="utf-8"))["neutral"]
    wrong = next(at for at, line in enumerate(text.splitlines(), 1) if line.endswith("# WRONG"))
    assert (done.returncode, result["file"], result["line"]) == (1, "train.py", wrong), done.stdout
    assert result["operator"] == "torch.tanh"
    assert (result["region"]["node"], result["region"]["stage"]) == ("bad", "backend")
    assert "node bad (torch.tanh) of a compiled region: the gradient for input 0 differs" in " ".join(
        done.stdout.split()
    )


@pytest.mark.exhaustive
def test_every_compiled_program() -> None:
    told = measure("compiled/")
    assert told.count("LINE") <= 2


@pytest.mark.exhaustive
@pytest.mark.parametrize("shard", ["fully_shard", "orig", "flat"])
@pytest.mark.parametrize(("wrong", "outcome"), [("", "rounding"), ("clip", "wrong")])
def test_shards_are_compared_with_whole_parameters(wrong: str, outcome: str, shard: str, tmp_path: Path) -> None:
    text = (ROOT / "tests/programs/sharded_neutral.py").read_text(encoding="utf-8")
    (tmp_path / "train.py").write_text(text, encoding="utf-8")
    launcher = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "train.py"]
    command = ["check", "--neutral", "world-size", "--quiet", "--json", "-", "--", *launcher]
    done = samerun(command, tmp_path, WRONG=wrong, SHARD=shard, OMP_NUM_THREADS="1")
    (result,) = json.loads(done.stdout)["neutral"]
    assert result["outcome"] == outcome, result
    line = next(at for at, each in enumerate(text.splitlines(), 1) if "each rank divides" in each)
    assert not wrong or abs(result["line"] - line) <= 2, result
    assert [point["apart"] > 0 for point in result["points"]] == [True] * 3, "the shards were not read"


@pytest.mark.exhaustive
def test_a_program_that_differs_by_itself_is_not_called_wrong(tmp_path: Path) -> None:
    text = "import os, torch\nmodel = torch.nn.Linear(40, 1)\noptimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n"
    text += "for step in range(2):\n    model(torch.randn(8, 40)).square().mean().backward()\n    optimizer.step()\n"
    (tmp_path / "train.py").write_text(text, encoding="utf-8")
    done = samerun(["check", "--neutral-env", "SIDE=a,b", "--quiet", "--json", "-", "train.py"], tmp_path)
    (result,) = json.loads(done.stdout)["neutral"]
    assert (done.returncode, result["outcome"]) == (2, "unaligned")
    assert "plain rerun" in result["detail"]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--neutral", "nothing"], "there is no switch 'nothing'"),
        (["--neutral", ""], "no switch is named"),
        (["--neutral", "accumulation"], "only the program knows"),
        (["--neutral", "python=/nowhere/python"], "is not an executable"),
        (["--against", "A=1"], "--neutral is not"),
        (["--neutral", "A=1", "--against", "A=1"], "the same settings"),
        (["--neutral", "compile", "--vary", "all"], "--vary cannot go with --neutral"),
        (["--neutral-env", "A=1"], "at least two values"),
    ],
)
def test_bad_options_are_trouble(options: list[str], said: str, tmp_path: Path) -> None:
    (tmp_path / "train.py").touch()
    done = samerun(["check", *options, "train.py"], tmp_path)
    assert (done.returncode, said in done.stderr) == (2, True), done.stderr


# --- the pieces
def test_names_of_switches() -> None:
    names = [switch.name for switch in parse_neutral_option("attention,compile,attention")]
    assert names == ["attention=flash", "attention=efficient", "attention=cudnn", "compile"]
    assert [switch.name for switch in parse_neutral_env_option("A=1,2,3")] == ["env:A=2", "env:A=3"]
    assert [switch.coarser for switch in parse_neutral_env_option("DTYPE=float32,bfloat16,float64")] == [True, False]
    with pytest.raises(SamerunError):
        parse_neutral_option("compiled")


def test_a_difference_that_shrinks_with_the_rounding_is_clean_and_one_that_stays_is_wrong() -> None:
    exact = np.linspace(1, 2, 64)
    noise = np.random.default_rng(0).standard_normal((4, 64))
    a, b = exact * (1 + 1e-7 * noise[0]), exact * (1 + 1e-7 * noise[1])
    fine = exact * (1 + 1e-15 * noise[2])
    assert judge_item(KEY, "float32", (a, b, exact, fine), False).verdict == "clean"
    assert judge_item(KEY, "float32", (a, 1.5 * b, exact, 1.5 * exact), False).verdict == "wrong"
    small = exact * (1 + 3e-8 * noise[3])  # hidden below the rounding of float32, and there in float64
    assert judge_item(KEY, "float32", (a, a + small - exact, exact, small), False).verdict == "wrong"
    assert judge_item(KEY, "float32", (a, b, exact, small), False).verdict == "unclear"
    assert judge_item(KEY, "float32", (a, b, exact, small), True).verdict == "unclear"
    assert judge_item(KEY, "float32", (a, np.full(64, np.inf), exact, exact), False).verdict == "wrong"
    assert judge_item(KEY, "bfloat16", (a, exact * (1 + 0.004 * noise[1]), exact, fine), False).verdict == "clean"


def summary(name: str, line: int, values: object, sources: tuple[int, ...] = (), phase: int = 0) -> OperatorSummary:
    flat = np.asarray(values, np.float64).ravel()
    weights = np.arange(flat.size) * 0.6180339887 % 1 + 0.5
    sums = np.array([flat.size, flat.sum(), np.abs(flat).sum(), (flat * flat).sum(), (flat * weights).sum()])
    return OperatorSummary(
        name,
        phase,
        SourceLocation("a.py", line, ""),
        tuple((at, 0) for at in sources),
        (("float64", flat.shape, sums),),
    )


def test_the_culprit_is_the_first_whose_result_never_comes_back() -> None:
    x, y, z = np.random.default_rng(1).standard_normal((3, 12))
    a = [summary("mm", 1, x), summary("soft", 2, y, (0,)), summary("mm", 3, z, (1,))]
    other_way = [summary("mm", 1, x), summary("fused", 2, 2 * y, (0,)), summary("mm", 3, z, (1,))]
    assert find_first_noncorresponding_operator(other_way, a) is None
    wrong = [summary("mm", 1, x), summary("fused", 2, 2 * y, (0,)), summary("mm", 3, z + 1, (1,))]
    culprit = find_first_noncorresponding_operator(wrong, a)
    assert culprit is not None and culprit.operator.location.line == 2


def test_parts_of_a_batch_correspond_to_the_whole() -> None:
    x, y = np.random.default_rng(2).standard_normal((2, 12))
    whole = [summary("mm", 1, x), summary("mm", 1, y)]
    rows = [summary("mm", 1, x[:6]), summary("mm", 1, y[:6]), summary("mm", 1, x[6:]), summary("mm", 1, y[6:])]
    assert find_first_noncorresponding_operator(rows, whole) is None
    addends = [summary("mm", 1, x / 4), summary("mm", 1, y / 4), summary("mm", 1, x * 0.75), summary("mm", 1, y * 0.75)]
    assert find_first_noncorresponding_operator(addends, whole) is None
    assert find_first_noncorresponding_operator([*addends, summary("mm", 9, x - y)], whole) is not None


def test_an_operator_whose_other_result_corresponds_is_still_the_culprit() -> None:
    x, values, indices, z = np.random.default_rng(3).standard_normal((4, 12))

    def largest(result: object) -> OperatorSummary:
        first, second = summary("max", 2, result), summary("max", 2, indices)
        return replace(first, sources=((0, 0),), results=(*first.results, *second.results))

    def program(result: object) -> list[OperatorSummary]:
        uses = [summary("loss", 3, np.add(result, x), (1,)), replace(summary("take", 4, z), sources=((1, 1),))]
        return [summary("mm", 1, x), largest(result), *uses]

    culprit = find_first_noncorresponding_operator(program(values + 1), program(values))
    assert culprit is not None and culprit.operator.location.line == 2
    assert find_first_noncorresponding_operator(program(values), program(values)) is None


def test_shares_of_a_tensor_add_up_to_its_numbers() -> None:
    for whole in (torch.randn(40, 31), torch.randn(6, 5), torch.randn(7)):
        halves = whole.split((len(whole) + 1) // 2)
        shards = [Shard(half, (at, *[0] * (whole.dim() - 1)), tuple(whole.shape), True)
                  for at, half in zip((0, len(halves[0])), halves, strict=True)]  # fmt: skip
        shards.append(Shard(halves[0], shards[0].offset, tuple(whole.shape), False))  # a replica counts once
        assert np.allclose(np.sum([take_share(shard) for shard in shards], axis=0), take_all_or_sampled_numbers(whole))
    columns = [Shard(torch.ones(40, 5), (0, at), (40, 31), True) for at in (0, 5)]
    expected = torch.zeros(40, 31)
    expected[:, :10] = 1
    assert np.allclose(np.sum([take_share(each) for each in columns], axis=0), take_all_or_sampled_numbers(expected))
    assert find_shard(torch.ones(2)) is None


def test_ranks_without_a_share_are_not_compared(tmp_path: Path) -> None:
    def write(role: str, values: list[float], shares: list[int]) -> None:
        items = [["parameter", "w", "float32", len(values)]]
        head = {"kind": "step", "number": 1, "items": items, "shares": shares, "bytes": 8 * len(values)}
        data = np.array(values, np.float64).tobytes()
        (tmp_path / f"{role}.numbers").write_bytes(json.dumps(head).encode() + b"\n" + data)

    write("rank0", [1, 0], [0])
    write("rank1", [0, 2], [0])
    traces: Any = RunTraces(tmp_path)
    traces.traces.update(rank0=None, rank1=None)
    key = ("parameter", "w")
    assert read_run_numbers(tmp_path, traces).steps[1].values[key].tolist() == [1, 2]
    write("rank1", [0, 2, 3], [0])
    assert key not in read_run_numbers(tmp_path, traces).steps[1].values


def run_in_float64(program: Callable[[], object]) -> tuple[object, dict[str, int], list[tuple[str, bool]]]:
    """What a program gives in float64, operators that stayed narrow, and for each operator whether it drew."""
    narrow: dict[str, int] = {}
    drew: list[tuple[str, bool]] = []
    mode = Float64Mode(True, {}, narrow)
    mode.summarise = lambda operator, operands, results, did: drew.append((operator.name, did != "none"))
    with mode:
        made = program()
    return made, narrow, drew


def test_numbers_of_python_are_wide_in_float64_and_whole_ones_may_be_counted_in_float32() -> None:
    made, narrow, _ = run_in_float64(lambda: torch.tensor([0.1], dtype=torch.float32).mul_(0.3))
    assert isinstance(made, torch.Tensor) and made.dtype == torch.float64 and not narrow
    counter = torch.zeros(1)
    run_in_float64(lambda: counter.add_(1))
    _, narrow, _ = run_in_float64(lambda: counter.add_(1))
    assert counter.dtype == torch.float32 and not narrow
    _, narrow, _ = run_in_float64(lambda: counter.mul_(0.1))
    assert narrow == {"aten.mul_.Tensor": 1}


def test_what_has_no_operand_to_be_widened_is_wide_in_float64_too() -> None:
    counts = torch.tensor([1, 2])
    programs = {
        "quotient": (lambda: counts / 3, counts.double() / 3),
        "product": (lambda: counts * 0.1, counts.double() * 0.1),
        "factory": (lambda: torch.full((2,), 0.1), torch.full((2,), 0.1, dtype=torch.float64)),
        "numbers": (
            lambda: make_tensor_of_python_numbers_wide(torch.tensor)([0.1, 0.1]),
            torch.full((2,), 0.1, dtype=torch.float64),
        ),
    }
    for name, (program, wanted) in programs.items():
        made, narrow, _ = run_in_float64(program)
        assert isinstance(made, torch.Tensor) and torch.equal(made, wanted) and not narrow, name
    torch.manual_seed(0)
    drawn, _, _ = run_in_float64(lambda: torch.rand(4))
    torch.manual_seed(0)
    assert isinstance(drawn, torch.Tensor) and torch.equal(drawn, torch.rand(4).double())  # as float32 draws them
    assert torch.get_default_dtype() is torch.float32


@pytest.mark.parametrize(
    ("write", "is_twice"),
    [
        (lambda x: x.__setitem__(torch.tensor([0, 2, 0]), torch.rand(3, 2)), True),
        (lambda x: x.__setitem__(torch.tensor([0, 2, 1]), torch.rand(3, 2)), False),
        (lambda x: x.__setitem__(torch.tensor([0, 2, 0]), 1.0), False),
        (lambda x: x.__setitem__((torch.tensor([[0], [1]]), torch.tensor([0, 1])), torch.rand(2, 2)), False),
        (lambda x: x.__setitem__(x > 0.5, torch.rand(int((x > 0.5).sum()))), False),
        (lambda x: x.index_put_((torch.tensor([0, 0]),), torch.rand(2, 2), accumulate=True), False),
    ],
)  # fmt: skip
def test_an_index_that_is_written_to_twice_is_noted(write: Callable[[torch.Tensor], object], is_twice: bool) -> None:
    noted: list[int] = []
    mode = Float64Mode(False, {}, {})
    mode.summarise, mode.note_overwriting = lambda *_: None, lambda: noted.append(1)
    x = torch.rand(3, 2)
    with mode:
        write(x)
    assert bool(noted) == is_twice


def test_a_step_without_an_optimizer_is_seen_by_its_parameters() -> None:
    model, frozen = torch.nn.Linear(3, 2), torch.nn.Linear(3, 2).requires_grad_(False)
    recorder: Any = SimpleNamespace(root_models={id(m): weakref.ref(m) for m in (model, frozen)})
    steps = HandWrittenSteps(recorder, ModelValues(recorder))
    assert steps.find_step(at_end=False) is None  # seen for the first time
    frozen.weight.fill_(1.0)
    assert steps.find_step(at_end=False) is None
    model.weight.data.mul_(2)  # past its version
    step = steps.find_step(at_end=False)
    assert step is not None and step.param_groups[0]["params"] == [model.weight, model.bias]
    assert steps.find_step(at_end=True) is None

    def look_inside(module: object, args: object) -> None:
        found.append(steps.find_step(at_end=False) is not None)

    found: list[bool] = []
    model.register_forward_pre_hook(look_inside)
    for scale in (1.0, 1.0, 3.0):
        others = {name: p.detach() * scale for name, p in model.named_parameters()}
        torch.func.functional_call(model, others, torch.ones(3))
    assert found == [False, False, True]
    assert steps.find_step(at_end=True) is None  # the model's own are back, which nobody trained


def test_a_model_made_on_the_meta_device_is_wide_where_it_gets_memory() -> None:
    model, _, _ = run_in_float64(lambda: torch.nn.utils.skip_init(torch.nn.Linear, 2, 2))
    assert isinstance(model, torch.nn.Linear) and model.weight.dtype == torch.float64


def test_a_cast_in_a_forward_pass_that_is_recomputed_is_wide_too() -> None:
    seen: list[torch.dtype] = []

    def block(x: torch.Tensor) -> torch.Tensor:
        y = x.to(torch.bfloat16) * 2
        seen.append(y.dtype)
        return y.float().sin()

    def program() -> object:
        x = torch.ones(3, requires_grad=True)
        checkpoint(block, x, use_reentrant=False).sum().backward()
        return x.grad

    _, narrow, _ = run_in_float64(program)
    assert seen == [torch.float64, torch.float64] and not narrow


def test_attention_that_drops_nothing_draws_nothing() -> None:
    x = torch.randn(1, 2, 4, 8)
    for p in (0.0, 0.5):
        _, _, drew = run_in_float64(lambda p=p: F.scaled_dot_product_attention(x, x, x, dropout_p=p))  # type: ignore[misc]
        assert any(did for _, did in drew) == (p > 0), drew


def test_the_operator_that_loses_bits() -> None:
    x, y = np.random.default_rng(5).standard_normal((2, 64)) + 4
    exact = [summary("mean", 1, x), summary("sub", 2, y, (0,)), summary("mul", 3, 2 * y, (1,))]
    rounded = [summary("mean", 1, x * (1 + 1e-8)), summary("sub", 2, y * 1.01, (0,)), summary("mul", 3, 2.02 * y, (1,))]
    told = find_losing_operator(rounded, exact, [])
    assert told is not None and told.line == 2
    narrow = replace(rounded[2], name="cast", results=(("bfloat16", *rounded[2].results[0][1:]),))
    told = find_losing_operator([*rounded[:2], narrow], exact, exact)
    assert told is not None and "bfloat16" in told.why and told.line == 3


def test_an_element_that_passes_a_threshold_by_its_last_bit_loses_none() -> None:
    x = np.random.default_rng(6).standard_normal(64)
    passed = np.where(np.arange(64) == 7, 0.0, x)
    exact = [summary("mm", 1, x), summary("aten.threshold_backward.default", 2, x, (0,))]
    rounded = [summary("mm", 1, x * (1 + 1e-8)), summary("aten.threshold_backward.default", 2, passed, (0,))]
    assert find_losing_operator(rounded, exact, []) is None

    def multiply_by_mask(value: Any, mask: Any) -> list[OperatorSummary]:
        compared = summary("gt", 2, mask, (0,))
        compared = replace(compared, results=(("bool", *compared.results[0][1:]),))
        return [summary("mm", 1, value), compared, summary("mul", 3, value * mask, (0, 1))]

    mask, other = np.arange(64) % 5 == 0, (np.arange(64) % 5 == 0) | (np.arange(64) == 7)
    exact, rounded = multiply_by_mask(x, mask), multiply_by_mask(x * (1 + 1e-8), other)
    assert find_losing_operator(rounded, exact, []) is None
    told = find_losing_operator([rounded[0], exact[1], rounded[2]], exact, [])
    assert told is not None and told.line == 3


def test_what_is_zero_but_for_rounding_loses_no_bits() -> None:
    x = np.random.default_rng(7).standard_normal(64)
    exact = [summary("mm", 1, x), summary("mean", 2, x * 1e-18, (0,)), summary("mul", 3, x * 1e-18, (1,))]
    rounded = [summary("mm", 1, x * (1 + 1e-8)), summary("mean", 2, x * 1e-9, (0,)), summary("mul", 3, x * 2e-9, (1,))]
    assert find_losing_operator(rounded, exact, []) is None


@pytest.mark.exhaustive
def test_a_variable_that_the_program_does_not_name_is_told(tmp_path: Path) -> None:
    text = "import os, torch\ntorch.manual_seed(0)\nmodel = torch.nn.Linear(4, 1)\nside = os.environ.get('SIDE')\n"
    text += "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\nmodel(torch.ones(2, 4)).sum().backward()\n"
    (tmp_path / "train.py").write_text(text + "optimizer.step()\n", encoding="utf-8")
    for variable, told in (("SIDES", "SIDES stands in no file of the program"), ("SIDE", "")):
        done = samerun(["check", "--neutral-env", f"{variable}=a,b", "--json", "-", "train.py"], tmp_path)
        detail = json.loads(done.stdout)["neutral"][0]["detail"]
        assert done.returncode == 0 and "the same bits in 1 optimizer step" in detail
        assert detail.endswith(told or "optimizer step")


MEAN_OVER_BATCHES = """
import sys, torch
torch.manual_seed(0)
weight = torch.zeros(4, requires_grad=True)
optimizer = torch.optim.SGD([weight], lr=0.1)
x, y = torch.randn(50, 4), torch.randn(50)
for step in range(2):
    optimizer.zero_grad()
    ((x @ weight - y) ** 2).mean().backward()
    optimizer.step()
total = batches = 0
for part, wanted in zip(x.split(int(sys.argv[1])), y.split(int(sys.argv[1]))):
    loss = ((part @ weight.detach() - wanted) ** 2).mean().item()
    total, batches = total + loss * LENGTH, batches + LENGTH
print(f"batches of {sys.argv[1]}")
print(f"loss {total / batches:.4f}")
"""


@pytest.mark.slow
@pytest.mark.parametrize(("length", "outcome"), [("1", "unaligned"), ("len(part)", "same")])
def test_what_is_printed_of_values_that_were_not_compared_is_told(length: str, outcome: str, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(MEAN_OVER_BATCHES.replace("LENGTH", length), encoding="utf-8")
    done = samerun(["check", "--neutral", "25", "--against", "48", "--json", "-", "train.py"], tmp_path)
    found = json.loads(done.stdout)["neutral"][0]
    assert (found["outcome"], done.returncode) == (outcome, 2 if outcome == "unaligned" else 0)
    assert ("side A prints 'loss " in found["detail"]) == (outcome == "unaligned")


def test_printed_fractions_agree_up_to_rounding() -> None:
    for one, other, agree in (
        (b"0.523", b"0.524", True), (b"0.523", b"0.526", False), (b"1.9902921", b"1.9902931", True),
        (b"1e-3", b"2e-3", False), (b"nan", b"nan", True), (b"nan", b"1.0", False), (b"inf", b"inf", True),
        (b"inf", b"1.0", False),
    ):  # fmt: skip
        assert agree_as_printed(one, other) is agree, (one, other)

"""`samerun check --neutral`: verdicts and lines on programs that are neutral and on those that are not."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from check_command import samerun
from repository_paths import ROOT

from samerun.base.errors import SamerunError
from samerun.check.evidence.run_numbers import OperatorSummary
from samerun.check.evidence.value_correspondence import find_culprit
from samerun.check.variations.neutral_switches import parse_neutral_env_option, parse_neutral_option
from samerun.record.comparison.rounding import judge_item
from samerun.record.trace.reader import SourceLocation

PROGRAMS = ROOT / "tests/programs/neutral"
FEW = ("recompute_rng", "accumulation_denominator", "scheduler_per_part", "mask_dropped", "clip_per_part", "gelu_tanh",
       "compiled/loses_gradient")  # fmt: skip
"""Programs of which each shows another kind of evidence; the others are run with the slow tests."""
KEY = ("gradient", "weight")


def measure(*names: str) -> str:
    """Check programs with the tool, which ends with exit code 1 if a verdict is not right; what it printed."""
    tool = [sys.executable, str(ROOT / "tools/neutral_programs.py"), *names]
    done = subprocess.run(tool, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


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


@pytest.mark.slow
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
        (["--neutral", "python=/nowhere/python"], "is no program"),
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
        False,
    )


def test_the_culprit_is_the_first_whose_result_never_comes_back() -> None:
    x, y, z = np.random.default_rng(1).standard_normal((3, 12))
    a = [summary("mm", 1, x), summary("soft", 2, y, (0,)), summary("mm", 3, z, (1,))]
    other_way = [summary("mm", 1, x), summary("fused", 2, 2 * y, (0,)), summary("mm", 3, z, (1,))]
    assert find_culprit(other_way, a) is None
    wrong = [summary("mm", 1, x), summary("fused", 2, 2 * y, (0,)), summary("mm", 3, z + 1, (1,))]
    culprit = find_culprit(wrong, a)
    assert culprit is not None and culprit.operator.location.line == 2


def test_parts_of_a_batch_correspond_to_the_whole() -> None:
    x, y = np.random.default_rng(2).standard_normal((2, 12))
    whole = [summary("mm", 1, x), summary("mm", 1, y)]
    rows = [summary("mm", 1, x[:6]), summary("mm", 1, y[:6]), summary("mm", 1, x[6:]), summary("mm", 1, y[6:])]
    assert find_culprit(rows, whole) is None
    addends = [summary("mm", 1, x / 4), summary("mm", 1, y / 4), summary("mm", 1, x * 0.75), summary("mm", 1, y * 0.75)]
    assert find_culprit(addends, whole) is None
    assert find_culprit([*addends, summary("mm", 9, x - y)], whole) is not None

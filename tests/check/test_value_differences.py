"""How a difference grows: which steps are compared, in what numbers, and what the report says of them."""

from __future__ import annotations

import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from check_command import check

from samerun.base.records import Divergence, Growth
from samerun.check.evidence.value_differences import (
    MOST_POINTS,
    choose_snapshot_steps,
    compare_steps_by_digest,
    measure_growth_points_if_different,
)
from samerun.record.trace import format as f
from samerun.record.trace.run import RunTraces
from samerun.record.trace.writer import TraceWriter
from samerun.record.watching import kept_tensors
from samerun.record.watching.kept_tensors import step_values_path
from samerun.report.html import make_growth_plot
from samerun.report.terminal import describe_growth


@pytest.mark.parametrize("different", [((1, 1),), ((3, 40),), ((1, 5), (9, 9)), ((7, 100_000),), ((99_999, 100_000),)])
def test_a_bounded_number_of_steps(different: tuple[tuple[int, int], ...]) -> None:
    steps = max(100, different[-1][1])
    chosen = choose_snapshot_steps(Divergence(steps, different, (), "unknown"))
    assert len(chosen) <= MOST_POINTS
    assert list(chosen) == sorted(set(chosen))
    assert {different[0][0], different[-1][1], steps} <= set(chosen) <= set(range(1, steps + 1))


def test_nothing_to_keep_where_nothing_differs() -> None:
    assert choose_snapshot_steps(None) == choose_snapshot_steps(Divergence(9, (), (), "same")) == ()


def keep_values(folder: Path, step: int, tensors: list[torch.Tensor], loss: float | None) -> None:
    folder.mkdir(exist_ok=True)
    facts = {"line": 0, "loss": None if loss is None else loss.hex(), "parameters": sum(t.numel() for t in tensors)}
    kept_tensors.write_readable_tensors(step_values_path(str(folder), step), tensors, facts)


def test_the_numbers(tmp_path: Path) -> None:
    one = [torch.tensor([3.0, 4.0]), torch.tensor([0.0], dtype=torch.bfloat16)]
    other = [torch.nextafter(one[0], torch.tensor([9.0, 4.0])), one[1]]
    for name, tensors, loss in (("a", one, 0.5), ("b", other, 0.25)):
        keep_values(tmp_path / name, 1, one, None)
        keep_values(tmp_path / name, 2, tensors, loss)
    same, apart = measure_growth_points_if_different(tmp_path / "a", tmp_path / "b", (1, 2, 5))
    gap = 2.0**-22
    assert same == Growth(1, 0, 3, 3, None, None, 0.0, None)
    assert apart == Growth(2, 1, 3, 3, gap, 1, gap / 5, (0.5, 0.25))
    assert measure_growth_points_if_different(tmp_path / "a", tmp_path / "a", (1, 2)) == ()


@pytest.mark.parametrize(("drawn", "first"), [("", ("loss",)), ("python", ("loss", "rng.python"))])
def test_generators_that_nobody_uses_are_in_another_state_in_every_run(
    drawn: str, first: tuple[str, ...], tmp_path: Path
) -> None:
    runs: list[Any] = []
    for state in (1, 2):
        (tmp_path / str(state)).mkdir()
        writer = TraceWriter(str(tmp_path / str(state) / "main.trace"), "main")
        rows = [(f.DRAW, drawn, 0)] if drawn else []
        for kind, name, outputs in [*rows, *((f.LEAF, n, state) for n in ("rng.numpy", "rng.python", "loss"))]:
            at = writer.intern_string(name)
            writer.append(f.EVENT.pack(kind, 0, 0, at, 0, 0, 0, outputs.to_bytes(16, "little")))
        writer.append(f.EVENT.pack(f.STEP, 0, 0, 0, 0, 0, 0, state.to_bytes(16, "little")))
        writer.close()
        runs.append(SimpleNamespace(traces=RunTraces(tmp_path / str(state))))
    found = compare_steps_by_digest(*runs)
    assert found is not None and tuple(name for name, _ in found.leaves) == first


def test_values_that_are_not_finite(tmp_path: Path) -> None:
    keep_values(tmp_path / "a", 1, [torch.tensor([1.0, math.nan])], math.inf)
    keep_values(tmp_path / "b", 1, [torch.tensor([2.0, math.inf])], 1.0)
    (point,) = measure_growth_points_if_different(tmp_path / "a", tmp_path / "b", (1,))
    assert (point.elements_different, point.max_abs, point.relative, point.losses) == (2, 1.0, None, None)


def point(step: int, relative: float, different: int = 2, losses: tuple[float, float] | None = None) -> Growth:
    return Growth(step, different, 4, 4, relative, 3, relative, losses)


def test_in_words() -> None:
    spread = Divergence(20, ((2, 20),), (), "different", (point(2, 1e-7), point(20, 1e-4, losses=(0.5, 0.501))))
    assert describe_growth(spread) == [
        "Parameters: after step 2, 2 of 4 differ, by up to 3 ulp, relative 1e-07;"
        " after step 20, 2 of 4 differ, by up to 3 ulp, relative 0.0001",
        "The difference grows by a factor of 1e+03 over 18 steps",
        "Loss at step 20: 0.5 and 0.501, 0.2 % apart",
    ]
    gone = Divergence(20, ((2, 3),), (), "same", (point(2, 1e-7), point(20, 0.0, 0, (0.5, 0.5))))
    assert describe_growth(gone)[1:] == [
        "After step 20 the parameters are the same again",
        "Loss at step 20: 0.5 in both runs",
    ]


def test_the_plot_has_a_point_for_every_step_that_differs() -> None:
    drawn = make_growth_plot((point(1, 1e-8), point(3, 1e-4), point(9, 0.0, 0), point(11, 0.03)))
    assert drawn is not None
    assert [mark.text.split(":")[0] for mark in drawn.points] == ["step 1", "step 3", "step 11"]
    heights = [mark.y for mark in drawn.points]
    assert heights == sorted(heights, reverse=True)
    assert make_growth_plot((point(1, 1e-8),)) is None


PROGRAM = """
import os, torch
sign = float(os.environ["SIGN"])
w = torch.nn.Parameter(torch.ones(8))
optimizer = torch.optim.SGD([w], lr=abs(sign))
for step in range(12):
    optimizer.zero_grad()
    (0.5 * (w - 1).square().sum() * (1 if sign > 0 else -1)).backward()
    optimizer.step()
    if step == 1:
        with torch.no_grad():
            w[0] += float(os.environ["NUDGE"])
"""


@pytest.mark.exhaustive
@pytest.mark.parametrize(("sign", "ratio"), [("-1", 2.0), ("0.5", 0.5)])
def test_a_difference_that_doubles_or_halves_at_every_step(sign: str, ratio: float, tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    nudge = 2.0**-12
    code, report = check(["--vary", "none", "--vary-env", f"NUDGE=0,{nudge!r}", "program.py"], tmp_path, SIGN=sign)
    assert code == 1
    points: list[dict[str, Any]] = report["spread"]["growth"]
    assert points[0]["step"] == 3 and points[-1]["step"] == 12
    for one in points:
        assert one["elements_different"] == 1 and one["elements"] == one["parameters"] == 8
        assert one["max_abs"] == nudge * ratio ** (one["step"] - 2)
        assert one["relative"] == pytest.approx(one["max_abs"] / math.sqrt(8))
        assert one["losses"][0] == 0.0 and one["losses"][1] != 0.0

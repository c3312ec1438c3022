"""`samerun cost`: the program as it is, held still and portable, in numbers; and what it says where it cannot."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from check_command import heed_interrupts, list_running_commands, samerun
from html_page import EVIL, Page

from samerun.base.machine import collect_machine_facts
from samerun.base.records import CostReport, MedianAndRange, OperatorCost, Setting
from samerun.check.execution.cost import MeasuredRun, compute_median_operator_costs, median_and_range
from samerun.report.cost import (
    cost_to_html,
    format_amount_with_ratio,
    format_quantity,
    make_row_per_quantity_with_cell_per_setting,
)

TRAIN = """
import sys, torch
model = torch.nn.Linear(8, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(6):
    optimizer.zero_grad()
    loss = model(torch.ones(16, 8)).square().mean()
    if "eigenvalues" in sys.argv:
        torch.linalg.eig(loss.detach() * torch.eye(2))
    loss.backward()
    optimizer.step()
print("done")
"""


def part(steps: int = 3, **operators: list[float]) -> dict[str, Any]:
    return {
        "cpu_seconds": 2.0, "peak_bytes": 1024, "device_peak_bytes": 0, "steps": steps,
        "ends": [[1.0, 0.5], [2.0, 1.5]], "stopped": "", "operators": operators,
    }  # fmt: skip


def test_processes_of_a_run_are_added_up_and_runs_give_the_median() -> None:
    runs = [MeasuredRun(1.0, (part(mm=[2, n, 8]), part(mm=[1, n, 0], add=[1, 1.0, 0])), "") for n in (1.0, 5.0, 2.0)]
    assert compute_median_operator_costs(runs) == {"mm": OperatorCost(3, 4.0, 8), "add": OperatorCost(1, 1.0, 0)}
    assert runs[0].steps == 3 and runs[0].longest_seconds_per_step(0) == 0.5
    assert MeasuredRun(1.0, (part(1),), "").longest_seconds_per_step(0) is None
    assert median_and_range([3.0, 1.0, 2.0]) == MedianAndRange(2.0, 1.0, 3.0) and median_and_range([]) is None


def test_quantities() -> None:
    assert [format_quantity(v, "s") for v in (12.345, 0.0021, 3.2e-6)] == ["12.3 s", "2.1 ms", "3.2 us"]
    assert format_quantity(3 * 2**20, "B") == "3 MiB"
    plain = MedianAndRange(2.0, 2.0, 2.0)
    assert (
        format_amount_with_ratio(plain, plain, "s") == "2 s"
        and format_amount_with_ratio(MedianAndRange(3.0, 3, 3), plain, "s") == "3 s (1.50x)"
    )
    assert format_amount_with_ratio(None, plain, "s") == "-"


def test_the_page_is_escaped_and_fetches_nothing() -> None:
    wall = MedianAndRange(1.0, 1.0, 1.0)
    settings = (Setting("plain", "measured", "", 6, wall, wall), Setting("portable", "stopped", EVIL))
    report = CostReport((EVIL,), 3, settings, ((EVIL, (OperatorCost(1, 0.5, 8), None)),))
    text = cost_to_html(report, "0", collect_machine_facts(), 15)
    page = Page(text)
    assert "script" not in page.tags and not {"link", "img", "iframe"} & set(page.tags)
    assert "".join(page.words).count(EVIL) >= 4
    assert not [value for name, value in page.attributes if name in ("src", "href") and "://" in value]
    for opening in re.findall(r"<div class=\"scroll\"[^>]*>", text):
        assert 'tabindex="0"' in opening and "aria-label" in opening
    assert report.exit_code == 1 and make_row_per_quantity_with_cell_per_setting(report)[0] == [
        "the program",
        "1 s",
        "-",
    ]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["missing.py"], "There is no script missing.py"),
        ([], "No script given"),
        (["--repeat", "0", "train.py"], "--repeat"),
        (["--html", "/no/such/folder/x.html", "train.py"], "No such file"),
        (["train.py"], "The program as it is ended with exit code 3: SystemExit"),
    ],
)
def test_bad_input_is_trouble(arguments: list[str], words: str, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(
        "print('first')\nimport sys\nprint('SystemExit', file=sys.stderr)\nsys.exit(3)\n"
    )
    done = samerun(["cost", *arguments], tmp_path)
    assert done.returncode == 2
    assert words in done.stderr and "Traceback" not in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["train.py"]


@pytest.mark.exhaustive
def test_a_training_in_numbers(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(TRAIN)
    options = ["--repeat", "1", "--max-steps", "4", "--json", "cost.json", "--html", "cost.html"]
    done = samerun(["cost", *options, "train.py"], tmp_path, COLUMNS="80", NO_COLOR="1")
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads((tmp_path / "cost.json").read_text())
    assert [(one["name"], one["outcome"], one["steps"]) for one in report["settings"]] == [
        ("plain", "measured", 4), ("deterministic", "measured", 4), ("portable", "measured", 4),
    ]  # fmt: skip
    for one in report["settings"]:
        assert 0 < one["step"]["median"] < one["wall"]["median"] and one["cpu"]["median"] > 0
        assert one["peak"]["median"] > 50 << 20 and one["device_peak"] is None
    product = next(one for one in report["operators"] if one["operator"] == "aten.addmm.default")
    assert [product[name]["calls"] for name in ("plain", "deterministic", "portable")] == [4, 4, 4]
    assert "addmm" in done.stdout and "portable" in done.stdout
    assert max(len(line.rstrip()) for line in done.stdout.splitlines()) <= 80
    assert "svg" in Page((tmp_path / "cost.html").read_text()).tags


@pytest.mark.exhaustive
def test_an_operator_that_is_not_portable(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(TRAIN)
    done = samerun(["cost", "--repeat", "1", "--json", "-", "train.py", "eigenvalues"], tmp_path)
    report = json.loads(done.stdout)
    assert done.returncode == 1
    outcomes = {one["name"]: one for one in report["settings"]}
    assert outcomes["plain"]["outcome"] == "measured"
    assert outcomes["portable"]["outcome"] == "stopped"
    assert "linalg_eig" in outcomes["portable"]["detail"] and "train.py:9" in outcomes["portable"]["detail"]


def test_an_interrupt_leaves_no_child(tmp_path: Path) -> None:
    mark = f"marked-cost-{os.getpid()}"
    (tmp_path / "hangs.py").write_text("import time\ntime.sleep(600)\n")
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    process = subprocess.Popen(
        [sys.executable, "-m", "samerun", "cost", "hangs.py", mark],
        cwd=tmp_path, stderr=subprocess.PIPE, text=True, env={**os.environ, "TMPDIR": str(temporary)},
        preexec_fn=heed_interrupts,
    )  # fmt: skip
    deadline = time.monotonic() + 60
    while not list_running_commands(mark, except_pid=process.pid) and time.monotonic() < deadline:
        time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=30)
    assert process.returncode == 2 and "interrupted" in said
    assert not list_running_commands(mark, except_pid=process.pid) and list(temporary.iterdir()) == []


@pytest.mark.cuda
def test_on_a_device(tmp_path: Path) -> None:
    program = TRAIN.replace("torch.nn.Linear(8, 4)", "torch.nn.Linear(8, 4).cuda()")
    (tmp_path / "train.py").write_text(program.replace("torch.ones(16, 8)", "torch.ones(16, 8, device='cuda')"))
    done = samerun(["cost", "--repeat", "1", "--json", "-", "train.py"], tmp_path)
    plain, deterministic, portable = json.loads(done.stdout)["settings"]
    assert plain["device_peak"]["median"] > 0 and deterministic["outcome"] == "measured"
    assert (done.returncode, portable["outcome"]) == (0, "measured")

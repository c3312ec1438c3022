"""`samerun check` from the outside: verdicts, exit codes, messages, nothing left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from check_command import check, heed_interrupts, list_running_commands, samerun
from repository_paths import PROGRAMS

AWKWARD = PROGRAMS / "awkward"

CLEAN = """
import torch
torch.manual_seed(0)
model = torch.nn.Linear(4, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(3):
    optimizer.zero_grad()
    model(torch.randn(8, 4)).pow(2).mean().backward()
    optimizer.step()
print("done")
"""

LEAKS = {
    "hash_seed": ("names = [n for n in {'a', 'bb', 'ccc', 'dddd', 'e', 'f'}]\nx = x * len(names[0])\n"
                  "for i, n in enumerate(names): x = x + i * len(n)\n", "hash-order"),
    "listing_order": ("import os\nos.makedirs('d', exist_ok=True)\nfor n in 'abc': open('d/' + n, 'w').close()\n"
                      "for i, n in enumerate(os.listdir('d')): x = x + i * ord(n)\n", "listing-order"),
    "memory": ("buffer = torch.empty(8, 4)\nbuffer[:4] = 1\nx = x + buffer\n", "uninitialised-memory"),
    "clock": ("import datetime\nx = x + datetime.date.today().year\n", "time"),
    "timezone": ("import time\nx = x + time.timezone\n", "environment-variable"),
}  # fmt: skip


def write(folder: Path, text: str) -> str:
    (folder / "program.py").write_text(text)
    return "program.py"


def test_a_clean_program_is_same(tmp_path: Path) -> None:
    code, report = check([write(tmp_path, CLEAN)], tmp_path)
    assert code == 0
    assert report["verdict"] == "same"
    assert {v["outcome"] for v in report["variations"]} == {"same"}
    assert report["first_difference"] is report["cause"] is report["fix"] is None
    assert [run["steps"] for run in report["runs"]] == [3, 3]  # control, everything varied
    assert sorted(p.name for p in tmp_path.iterdir()) == ["program.py"]


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", sorted(LEAKS))
def test_a_variation_catches_what_leaks_only_it(name: str, tmp_path: Path) -> None:
    leak, kind = LEAKS[name]
    program = "import torch\nx = torch.ones(8, 4)\n" + leak + "print(float(torch.nn.functional.relu(x).sum()) > 0)\n"
    code, report = check(["--vary", f"rerun,{name}", write(tmp_path, program)], tmp_path)
    assert code == 1
    assert {v["name"]: v["outcome"] for v in report["variations"]} == {"rerun": "same", name: "different"}
    assert report["cause"]["kind"] == kind
    assert report["cause"]["certain"] is True
    assert report["first_difference"]["variation"] == name
    assert 3 <= report["cause"]["line"] <= 6


@pytest.mark.exhaustive
def test_elements_are_compared(tmp_path: Path) -> None:
    program = "import torch, random\nx = torch.zeros(5)\nx[2] = random.random()\nprint(x.sum() >= 0)\n"
    code, report = check(["--vary", "rerun", write(tmp_path, program)], tmp_path)
    first = report["first_difference"]
    assert code == 1
    assert (first["elements_different"], first["elements"]) == (1, 1)
    assert first["max_abs"] > 0
    assert report["cause"] | {"evidence": ()} == {
        "kind": "unseeded-python", "file": "program.py", "line": 3, "evidence": (), "certain": True,
    }  # fmt: skip


@pytest.mark.exhaustive
def test_steps_only(tmp_path: Path) -> None:
    unseeded = CLEAN.replace("torch.manual_seed(0)", "")
    code, report = check(["--vary", "rerun", "--trace", "steps", write(tmp_path, unseeded)], tmp_path)
    assert code == 1
    assert report["first_difference"]["step"] == 1
    assert report["cause"]["kind"] == "unseeded-torch" and report["cause"]["line"] == 4


@pytest.mark.exhaustive
def test_a_clean_program_is_the_same_by_steps(tmp_path: Path) -> None:
    assert check(["--vary", "rerun", "--trace", "steps", write(tmp_path, CLEAN)], tmp_path)[0] == 0


@pytest.mark.slow
def test_max_steps_ends_each_run_and_save_keeps_it(tmp_path: Path) -> None:
    code, report = check(
        ["--vary", "rerun", "--max-steps", "2", "--save", "kept", write(tmp_path, 'print("begun")' + CLEAN)], tmp_path
    )
    assert code == 0
    assert [run["steps"] for run in report["runs"]] == [2, 2]
    for run in report["runs"]:
        assert (Path(run["receipt"]) / "main.trace").stat().st_size > 0
        assert (Path(run["receipt"]) / "stdout").read_text() == "begun\n"


@pytest.mark.exhaustive
def test_own_variable(tmp_path: Path) -> None:
    program = "import os, torch\nx = torch.ones(3) * float(os.environ['SCALE'])\nprint(x)\n"
    code, report = check(["--vary", "none", "--vary-env", "SCALE=1,2", write(tmp_path, program)], tmp_path)
    assert code == 1
    assert report["cause"]["kind"] == "environment-variable"
    assert report["cause"]["line"] == 2


@pytest.mark.exhaustive
def test_a_varied_run_that_fails_is_a_difference(tmp_path: Path) -> None:
    program = "import torch\nx = torch.ones(2)\nassert hash('a') != 0 and hash('name') % 2 == hash('name') % 2\n"
    program += "import sys, os\nsys.exit(0 if os.environ['PYTHONHASHSEED'] == '1' else 4)\n"
    code, report = check(["--vary", "rerun,hash_seed", write(tmp_path, program)], tmp_path)
    assert code == 1
    assert report["cause"]["kind"] == "hash-order"
    assert "exit code 4" in report["variations"][1]["detail"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["missing.py"], "There is no script missing.py"),
        ([str(AWKWARD / "syntax_error.py")], "cannot be run: line"),
        (["--vary", "rerun", str(AWKWARD / "exits_3.py")], "ended with exit code 3"),
        pytest.param(
            ["--vary", "rerun", str(AWKWARD / "raises.py")],
            "Traceback (most recent call last)", marks=pytest.mark.slow,
        ),
        (["--vary", "rerun", "--time-limit", "5", str(AWKWARD / "hangs.py")], "was ended"),
        (["--vary", "sunshine", str(AWKWARD / "threads.py")], "there is no variation 'sunshine'"),
        (["--vary", "hashseed", str(AWKWARD / "threads.py")], "Did you mean hash_seed?"),
        (["--repeat", "none", str(AWKWARD / "threads.py")], "--repeat"),
        (["-m", "no_such_module"], "There is no module no_such_module"),
        (["--", "no_such_command"], "There is no command 'no_such_command'"),
        ([], "No script given"),
        (["--json", "/no/such/folder/x.json", str(AWKWARD / "threads.py")], "No such file"),
        (["--save", str(AWKWARD), str(AWKWARD / "threads.py")], "not empty"),
    ],
)  # fmt: skip
def test_bad_input_is_trouble(arguments: list[str], message: str, tmp_path: Path) -> None:
    done = samerun(["check", *arguments], tmp_path)
    assert done.returncode == 2
    assert message in done.stderr
    assert done.stdout == ""
    assert "samerun/" not in done.stderr.replace("samerun/tests", "")  # no traceback of ours
    assert list(tmp_path.iterdir()) == []


def test_interrupt_leaves_no_child(tmp_path: Path) -> None:
    mark = f"marked-{os.getpid()}"
    process = subprocess.Popen(
        [sys.executable, "-m", "samerun", "check", "--vary", "rerun", str(AWKWARD / "hangs.py"), mark],
        cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env={**os.environ, "TMPDIR": str(tmp_path)}, preexec_fn=heed_interrupts,
    )  # fmt: skip
    deadline = time.monotonic() + 60
    while not list_running_commands(mark, except_pid=process.pid) and time.monotonic() < deadline:
        time.sleep(0.1)
    time.sleep(1)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=30)
    assert process.returncode == 2
    assert "interrupted" in said
    assert not list_running_commands(mark, except_pid=process.pid)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_modules_and_commands(tmp_path: Path) -> None:
    package = tmp_path / "package"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "train.py").write_text(CLEAN + "import sys\nassert sys.argv[1:] == ['--vary', 'x']\n")
    assert check(["--vary", "rerun", "-m", "package.train", "--vary", "x"], tmp_path)[0] == 0
    write(tmp_path, CLEAN)
    code, report = check(["--vary", "rerun", "--", "sh", "-c", f"{sys.executable} program.py"], tmp_path)
    assert code == 0
    assert report["runs"][0]["steps"] == 3


def test_nothing_watched_is_trouble(tmp_path: Path) -> None:
    done = samerun(["check", "--vary", "rerun", "--", "sh", "-c", "true"], tmp_path)
    assert done.returncode == 2
    assert "left no trace" in done.stderr


@pytest.mark.parametrize("text", ["import torch\n", "print(1)\n"])
def test_a_program_that_computes_nothing_is_told_so(text: str, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(text)
    done = samerun(["check", "train.py"], tmp_path)
    assert done.returncode == 2
    assert "left nothing to compare: train.py ended without computing" in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "kind"),
    [
        pytest.param("random.random()", "unseeded-python", marks=pytest.mark.exhaustive),
        ("random.Random(0).random()", None),
        ("time.time()", None),
    ],
)
def test_a_program_without_operators_is_compared_by_what_it_prints(text: str, kind: str | None, tmp_path: Path) -> None:
    program = f"import random, time, torch\nx = torch.tensor(0)\nprint('total', {text})\n"
    code, report = check(["--vary", "rerun", write(tmp_path, program)], tmp_path)
    assert code == (1 if kind else 0)
    expected = [(kind, True, 3)] if kind else []
    assert [(c["kind"], c["certain"], c["line"]) for c in report["causes"]] == expected
    assert any(note.startswith("No torch operator ran") for note in report["notes"]) is (kind is None)


@pytest.mark.exhaustive
def test_a_varied_run_that_takes_too_long_is_trouble_for_that_variation(tmp_path: Path) -> None:
    program = "import os, time, torch\nx = torch.ones(2) + 1\n"
    program += "time.sleep(600 if os.environ.get('PYTHONHASHSEED') == '2' else 0)\n"
    code, report = check(["--vary", "rerun,hash_seed", "--time-limit", "60", write(tmp_path, program)], tmp_path)
    assert (code, report["verdict"]) == (0, "same")
    outcomes = {v["name"]: v for v in report["variations"]}
    assert outcomes["hash_seed"]["outcome"] == "trouble"
    assert "did not end in time" in outcomes["hash_seed"]["detail"]


@pytest.mark.slow
def test_a_program_that_fails_names_what_to_try_alone_and_an_error_of_samerun(tmp_path: Path) -> None:
    breaks = "import samerun.record.watching.stack_frames as sites, torch\nsites._code_kinds = None\ntorch.seed()\n"
    for text, own in (("import os\nos.listdir('not there')\n", False), (breaks, True)):
        words = [write(tmp_path, text), "--name", "a b"]
        done = samerun(["check", "--quiet", *words], tmp_path)
        assert done.returncode == 2
        assert f"It failed under samerun. Does `python {words[0]} --name 'a b'` work alone?" in done.stderr
        assert ("samerun's own error: AttributeError: 'NoneType'" in done.stderr) == own, done.stderr


@pytest.mark.exhaustive
@pytest.mark.parametrize("seed", ["", "0"])
def test_what_a_killed_child_computed_is_compared(seed: str, tmp_path: Path) -> None:
    lines = ["import numpy as np, os, torch", f"print(torch.ones(2) * np.random.default_rng({seed}).random())"]
    (tmp_path / "child.py").write_text("\n".join([*lines, "os.kill(os.getpid(), 9)"]))
    own = "import subprocess, sys, torch\ntorch.ones(2) * 2\nsubprocess.run([sys.executable, 'child.py'])\n"
    (tmp_path / "train.py").write_text(own)
    code, report = check(["--vary", "rerun", "train.py"], tmp_path)
    if seed:
        assert (code, report["verdict"]) == (0, "same")
        assert any("before a signal or C code ended the process" in note for note in report["notes"])
    else:
        cause = report["cause"]
        assert (code, cause["kind"], cause["line"]) == (1, "unseeded-numpy-generator", 2)

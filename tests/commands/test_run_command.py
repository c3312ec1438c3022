"""`samerun run`: what the program sees, and that nothing else of it changes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

REPORT = """
import json, os, random, sys
seen = {"argv": sys.argv[1:], "hash": hash("a"), "python": random.random()}
seen["hash_seed"] = os.environ.get("PYTHONHASHSEED")
if "torch" in sys.argv:
    import numpy, torch
    seen["numpy"] = float(numpy.random.rand())
    seen["torch"] = float(torch.rand(()))
    seen["deterministic"] = torch.are_deterministic_algorithms_enabled()
    seen["threads"] = torch.get_num_threads()
print(json.dumps(seen))
"""


def run(*words: str, cwd: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {k: v for k, v in os.environ.items() if k not in ("PYTHONHASHSEED", "CUBLAS_WORKSPACE_CONFIG")}
    return subprocess.run(
        [sys.executable, "-m", "samerun", "run", *words],
        cwd=cwd, env={**environment, **variables}, capture_output=True, text=True, timeout=120,
    )  # fmt: skip


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "train.py"
    path.write_text(REPORT)
    return path


def seen(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.mark.slow
def test_two_runs_are_the_same_and_another_seed_is_not(script: Path) -> None:
    one, two, other = (
        seen(run(*options, "train.py", "torch", cwd=script.parent)) for options in ([], [], ["--seed", "1"])
    )
    assert one == two
    assert one["deterministic"] is True and one["hash_seed"] == "0"
    for source in ("python", "numpy", "torch"):
        assert one[source] != other[source]


def test_arguments_and_every_form(script: Path) -> None:
    expected = ["--seed", "9", "-m", "--", "x y"]
    assert seen(run("train.py", *expected, cwd=script.parent))["argv"] == expected
    assert seen(run("-m", "train", *expected, cwd=script.parent))["argv"] == expected
    assert seen(run("--", sys.executable, "train.py", *expected, cwd=script.parent))["argv"] == expected


@pytest.mark.slow
def test_threads_and_own_values(script: Path) -> None:
    found = seen(run("--threads", "1", "train.py", "torch", cwd=script.parent, PYTHONHASHSEED="12"))
    assert found["threads"] == 1
    assert found["hash_seed"] == "12"


def test_a_value_that_will_not_do_is_an_error(script: Path) -> None:
    done = run("train.py", cwd=script.parent, PYTHONHASHSEED="random")
    assert done.returncode == 2
    assert done.stdout == ""
    assert "PYTHONHASHSEED=random" in done.stderr and "Traceback" not in done.stderr


@pytest.mark.parametrize(
    "words, said",
    [
        ([], "No script given"),
        (["missing.py"], "no script missing.py"),
        (["--seed", "-1", "train.py"], "-1"),
        (["--threads", "0", "train.py"], "0"),
        (["--", "no-such-command"], "no-such-command"),
        (["--json", "/nowhere/x.json", "train.py"], "/nowhere/x.json"),
    ],
)
def test_bad_input_is_trouble(words: list[str], said: str, script: Path) -> None:
    done = run(*words, cwd=script.parent)
    assert done.returncode == 2
    assert said in done.stderr and "Traceback" not in done.stderr


@pytest.mark.parametrize("code", [0, 1, 3, 120])
def test_the_exit_code_is_the_programs(code: int, tmp_path: Path) -> None:
    (tmp_path / "end.py").write_text(f"import sys; sys.exit({code})")
    assert run("end.py", cwd=tmp_path).returncode == code


def test_signals_reach_the_program(tmp_path: Path) -> None:
    (tmp_path / "wait.py").write_text(
        "import signal, sys, time\n"
        "signal.signal(signal.SIGTERM, lambda *_: sys.exit(42))\n"
        # Short sleeps: a signal in the moments before one begins is only handled behind it.
        "print('ready', flush=True)\nfor _ in range(600): time.sleep(0.1)\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-m", "samerun", "run", "wait.py"], cwd=tmp_path, stdout=subprocess.PIPE, text=True,
        stderr=subprocess.DEVNULL,
    )  # fmt: skip
    assert process.stdout is not None and process.stdout.readline() == "ready\n"
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=20) == 42
    process.stdout.close()


def test_standard_input_and_output_are_the_programs(tmp_path: Path) -> None:
    (tmp_path / "cat.py").write_text("import sys; sys.stdout.buffer.write(sys.stdin.buffer.read()[::-1])")
    done = subprocess.run(
        [sys.executable, "-m", "samerun", "run", "--quiet", "cat.py"],
        cwd=tmp_path,
        input=b"\x00\xff\n",
        capture_output=True,
    )
    assert (done.stdout, done.stderr, done.returncode) == (b"\n\xff\x00", b"", 0)


@pytest.mark.slow
def test_children_are_held_too(tmp_path: Path) -> None:
    (tmp_path / "parent.py").write_text(
        "import subprocess, sys\n"
        "code = 'import random, torch; print(random.random(), torch.are_deterministic_algorithms_enabled())'\n"
        "for _ in range(2): subprocess.run([sys.executable, '-c', code], check=True)\n"
    )
    lines = run("parent.py", cwd=tmp_path).stdout.splitlines()
    assert len(lines) == 2 and lines[0] == lines[1] and lines[0].endswith("True")


def test_unseeded_generators_are_refused_on_demand(tmp_path: Path) -> None:
    (tmp_path / "loose.py").write_text("import numpy as np\n\nrng = np.random.default_rng()\nprint('made')\n")
    assert run("loose.py", cwd=tmp_path).returncode == 0
    done = run("--unseeded", "error", "loose.py", cwd=tmp_path)
    assert done.returncode == 1 and "loose.py" in done.stderr and "line 3" in done.stderr


def test_a_sitecustomize_of_the_users_still_runs(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("import builtins; builtins.mine = 'here'")
    (tmp_path / "use.py").write_text("print(mine)")
    done = run("use.py", cwd=tmp_path, PYTHONPATH=os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")]))
    assert done.stdout == "here\n", done.stderr


def test_json_says_what_is_set(script: Path) -> None:
    done = run("--seed", "5", "--json", "set.json", "--quiet", "train.py", cwd=script.parent)
    assert done.returncode == 0 and done.stderr == ""
    record = json.loads((script.parent / "set.json").read_text())
    assert record["held"]["seed"] == 5 and record["command"] == ["train.py"]
    assert record["environment"]["PYTHONHASHSEED"] == "0"


def test_a_broken_request_ends_the_program(tmp_path: Path) -> None:
    """`site` prints what a sitecustomize raises and goes on: the program would run with nothing held."""
    from samerun.base.launch import prepend_bootstrap_to_pythonpath

    environment = prepend_bootstrap_to_pythonpath({**os.environ, "SAMERUN_HOLD": "not json"})
    done = subprocess.run([sys.executable, "-c", "print('ran')"], env=environment, capture_output=True, text=True)
    assert done.returncode == 2 and done.stdout == "" and "SAMERUN_HOLD" in done.stderr


@pytest.mark.exhaustive
def test_torchrun_ranks_are_held(tmp_path: Path) -> None:
    (tmp_path / "rank.py").write_text(
        "import sys, torch\n"  # one write, lest the ranks' writes be mixed
        "sys.stdout.write(f'rank {torch.are_deterministic_algorithms_enabled()} {float(torch.rand(()))}\\n')\n"
    )
    done = run("--", sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "rank.py", cwd=tmp_path)
    lines = [line for line in done.stdout.splitlines() if line.startswith("rank")]
    assert len(lines) == 2 and lines[0] == lines[1] and "True" in lines[0], done.stderr


def test_nothing_is_left_running(tmp_path: Path) -> None:
    """`run` is the program: there is no samerun process beside it."""
    (tmp_path / "who.py").write_text("import os; print(os.getpid())")
    process = subprocess.Popen(
        [sys.executable, "-m", "samerun", "run", "--quiet", "who.py"], cwd=tmp_path, stdout=subprocess.PIPE, text=True
    )
    out, _ = process.communicate(timeout=60)
    assert int(out) == process.pid


@pytest.mark.parametrize(("program", "is_noted"), [("print(1)\n", True), ("# --seed N\nprint(1)\n", False)])
def test_an_option_behind_the_script_is_noted_unless_it_is_the_scripts(
    program: str, is_noted: bool, tmp_path: Path
) -> None:
    (tmp_path / "program.py").write_text(program)
    done = run("program.py", "--seed", "2", cwd=tmp_path)
    assert done.returncode == 0 and done.stdout == "1\n"
    assert ("--seed comes after the script, so it is passed to program.py" in done.stderr) == is_noted

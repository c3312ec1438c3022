"""tools/gpu.py without a GPU: its runner with stand-in parts (tests/programs/gpu_stand_in.py), and short real ones."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import zipfile
from pathlib import Path
from typing import Any

import pytest
from check_command import heed_interrupts, wait_for
from gpu_parts import machine, record
from gpu_parts.table import PARTS
from repository_paths import PROGRAMS, ROOT

STAND_IN = [sys.executable, str(PROGRAMS / "gpu_stand_in.py"), "--device", "emulated", "--json", "run.json"]
GPU = [sys.executable, str(ROOT / "tools" / "gpu.py")]


def start(folder: Path, *options: str) -> subprocess.Popen[str]:
    (folder / "inputs.txt").touch()
    return subprocess.Popen(
        [*STAND_IN, *options], cwd=folder, env={**os.environ, "STAND_IN_FOLDER": str(folder)}, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, preexec_fn=heed_interrupts,
    )  # fmt: skip


def run(folder: Path, *options: str) -> tuple[int, str]:
    with start(folder, *options) as process:
        said, wrong = process.communicate(timeout=120)
    assert not wrong, wrong
    return process.returncode, said


def read(folder: Path) -> Any:
    return json.loads((folder / "run.json").read_text())


def calls(folder: Path) -> list[str]:
    path = folder / "calls"
    return path.read_text().splitlines() if path.exists() else []


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_whatever_a_check_does_the_rest_goes_on(tmp_path: Path) -> None:
    code, said = run(tmp_path, "--only", "ways,lost,broken,needy", "--verbose")
    assert code == 1
    found = read(tmp_path)
    ways = found["parts"]["ways"]
    states = {name: facts["state"] for name, facts in ways["checks"].items()}
    assert states == {
        "holds": "holds", "fails": "failed", "skips": "skipped", "crashes": "failed", "hangs": "failed",
        "ignores [SIGTERM]": "failed", "floods": "holds", "leaves processes": "holds", "exits": "failed",
        "measures": "holds", "is last": "holds",
    }  # fmt: skip
    assert ways["ended"] == "done" and calls(tmp_path)[: len(states)] == list(states), "each once, in order"
    failures = {name: facts["failure"] for name, facts in ways["checks"].items() if facts["state"] == "failed"}
    assert failures["fails"][:2] == ["AssertionError: two <rows> differ", "sum float32 | 7"]
    assert failures["crashes"][:2] == ["The process was ended by SIGSEGV in this check.", "the driver says no"]
    # What earlier checks printed may stand behind the first line.
    late = "The check did not answer in its time, and was ended."
    assert [failures[name][0] for name in ("hangs", "ignores [SIGTERM]")] == [late] * 2
    assert failures["exits"][0] == "The process ended with exit code 5 in this check."
    left = [int(line) for line in (tmp_path / "left").read_text().split()]
    assert len(left) == 2
    end = time.monotonic() + 30  # a signal was sent to each; on a busy machine it takes effect a little later
    while any(map(is_running, left)):
        assert time.monotonic() < end, left
        time.sleep(0.02)

    assert found["parts"]["lost"]["checks"]["next"]["state"] == "holds"
    assert found["parts"]["broken"]["trouble"] == ["The part ended with exit code 1.", "no such library"]
    assert found["parts"]["needy"]["ended"] == "unusable" and "never" not in calls(tmp_path)
    assert "slow" not in found["parts"]

    page = (tmp_path / "run.md").read_text()
    row = next(line for line in page.splitlines() if line.startswith("| ways: fails"))
    assert "two &lt;rows> differ<br>sum float32 \\| 7" in row
    assert row.endswith("| `python tools/gpu.py --device emulated --repeat ways:fails` |")
    assert "--repeat 'ways:ignores [[]SIGTERM]'`" in page
    assert "| ways: measures, / torch | 1.25 | 1.50 | 2.00 | 1.20 | no |" in page
    assert "| ways: skips | there is no second device |" in page
    assert "| slow | all of it |" in page and "failed   ways:hangs" in said


def test_a_check_is_repeated_alone(tmp_path: Path) -> None:
    run(tmp_path, "--only", "ways:holds,ways:fails")
    assert calls(tmp_path) == ["holds", "fails"]
    code, said = run(tmp_path, "--repeat", "ways:fails")
    assert code == 1 and calls(tmp_path) == ["holds", "fails", "fails"]
    assert "sum float32 | 7" in said
    code, _ = run(tmp_path, "--only", "ways:holds")
    assert code == 0 and len(calls(tmp_path)) == 3, "known"
    run(tmp_path, "--only", "ways:*s", "--skip", "ways:[!fh]*", "--again", "failed")
    assert calls(tmp_path)[3:] == ["fails", "hangs", "floods"]


def test_when_the_time_is_over_the_next_call_goes_on(tmp_path: Path) -> None:
    code, _ = run(tmp_path, "--only", "slow", "--minutes", "0.03")
    first = read(tmp_path)["parts"]["slow"]
    assert code == 3 and first["ended"] == "time" and len(first["checks"]) < 6
    code, said = run(tmp_path, "--only", "slow")
    assert code == 0 and read(tmp_path)["parts"]["slow"]["ended"] == "done", said
    done = calls(tmp_path)
    assert set(done) == {f"number {n}" for n in range(6)} and len(done) <= 7, "at most the interrupted one twice"
    assert "slow: known (holds)" in run(tmp_path, "--only", "slow")[1]
    (tmp_path / "inputs.txt").write_text("other sources")
    run(tmp_path, "--only", "slow:number 1")
    assert calls(tmp_path)[len(done) :] == ["number 1"] and list(read(tmp_path)["parts"]["slow"]["checks"]) == [
        "number 1"
    ]
    assert "not finished" in run(tmp_path, "--list")[1]


@pytest.mark.slow
def test_parts_beside_each_other_come_into_one_record(tmp_path: Path) -> None:
    code, said = run(tmp_path, "--beside", "--only", "ways:h*s,slow,lost,broken", "--skip", "ways:hangs")
    found = read(tmp_path)["parts"]
    assert code == 1 and list(found) == ["ways", "slow", "broken", "lost"], said
    assert [len(found[name]["checks"]) for name in found] == [1, 6, 0, 2] and found["slow"]["ended"] == "done"
    assert calls(tmp_path)[-2:] == ["loses the device", "next"], "what measures time comes last, alone"
    assert "slow: known (holds)" in run(tmp_path, "--beside", "--only", "slow")[1]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_leaves_a_valid_result(number: signal.Signals, tmp_path: Path) -> None:
    process = start(tmp_path, "--only", "ways:h*,slow")
    wait_for(tmp_path / "calls")
    while "hangs" not in calls(tmp_path):
        time.sleep(0.01)
    process.send_signal(number)
    said, wrong = process.communicate(timeout=60)
    assert process.returncode == 3 and not wrong, (said, wrong)
    ways = read(tmp_path)["parts"]["ways"]
    assert ways["ended"] == "interrupted" and list(ways["checks"]) == ["holds"]
    assert "slow" not in read(tmp_path)["parts"] and (tmp_path / "run.md").exists()


def refused(folder: Path, *options: str) -> str:
    done = subprocess.run([*GPU, *options], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 2 and "Traceback" not in done.stderr, done.stderr
    return done.stderr


def test_bad_input_is_refused(tmp_path: Path) -> None:
    assert "--only kernels,vektors:n=1" not in refused(tmp_path, "--only", "vektors:n=1")
    assert "there is no such part; the parts are kernels, vectors" in refused(tmp_path, "--skip", "vektors")
    assert "--minutes 0.0: it must be more than 0" in refused(tmp_path, "--minutes", "0")
    assert "--wheels nowhere: it is not a directory" in refused(tmp_path, "--wheels", "nowhere")
    (tmp_path / "other.json").write_text('{"benchmark": "bench_start.py"}')
    assert "it is not a record of tools/gpu.py. Name another file." in refused(tmp_path, "--json", "other.json")
    assert (tmp_path / "other.json").read_text() == '{"benchmark": "bench_start.py"}'


def test_without_a_device_it_says_what_to_do(tmp_path: Path) -> None:
    import torch

    if torch.cuda.is_available():
        pytest.skip("there is a device")
    told = refused(tmp_path, "--json", "run.json")
    assert "torch 2." in told and "--device emulated runs the same parts on the CPU" in told
    assert not (tmp_path / "run.json").exists()


def test_every_part_has_its_module_and_inputs_that_exist() -> None:
    assert len({part.name for part in PARTS}) == len(PARTS) == 9
    for part in PARTS:
        assert (ROOT / "tools" / "gpu_parts" / f"{part.name}.py").exists()
        assert all((ROOT / place).exists() for place in part.inputs), part.name
        assert record.digest_inputs(part, "") != record.digest_inputs(part, "another torch")


def test_wheels_stand_in_for_packages_that_are_missing(tmp_path: Path) -> None:
    ours = f"cp{sys.version_info.major}{sys.version_info.minor}"
    this = f"{machine.platform.machine()}"
    wheels = {
        "some_thing-1.0-py3-none-any.whl": True,
        f"some_thing-1.0-{ours}-{ours}-manylinux2014_{this}.manylinux_2_17_{this}.whl": True,
        "some_thing-1.0-cp38-abi3-manylinux_2_28_" + this + ".whl": True,
        "some_thing-1.0-cp27-cp27mu-manylinux1_" + this + ".whl": False,
        f"some_thing-1.0-{ours}-{ours}-musllinux_1_2_{this}.whl": False,
        f"some_thing-1.0-{ours}-{ours}-win_amd64.whl": False,
        f"some_thing-1.0-cp399-abi3-manylinux_2_28_{this}.whl": False,
    }
    assert {name: machine.fits_this_python(name) for name in wheels} == wheels
    for version, python in (("1.9", "3.8"), ("1.10", "3.10"), ("2.0", "3.99")):
        with zipfile.ZipFile(tmp_path / f"Some_Thing-{version}-py3-none-any.whl", "w") as archive:
            archive.writestr("some_thing/__init__.py", version)
            archive.writestr("some_thing.dist-info/METADATA", f"Name: some-thing\nRequires-Python: >={python}\n")
    machine.unpack_wheels(["some-thing"], tmp_path, tmp_path / "packages")
    machine.unpack_wheels(["another"], tmp_path, tmp_path / "nothing")
    assert (tmp_path / "packages" / "some_thing" / "__init__.py").read_text() == "1.10"
    assert not list((tmp_path / "nothing").iterdir())


SHORT = "kernels:build random*,vectors:operator exp,operators:cases of histc,costs:deterministic histc"
LONGER = "vectors:n=1,samples:portable exp,samples:deterministic cumsum"


@pytest.mark.exhaustive
@pytest.mark.parametrize("chosen", [SHORT, LONGER], ids=["short", "longer"])
def test_checks_on_the_emulated_device(chosen: str, tmp_path: Path) -> None:
    command = [*GPU, "--device", "emulated", "--json", "run.json", "--only", chosen]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    parts = read(tmp_path)["parts"]
    states = {f"{part}:{name}": f["state"] for part, e in parts.items() for name, f in e["checks"].items()}
    assert set(states) == {each.replace("*", " for the CPU") for each in chosen.split(",")}
    assert set(states.values()) == {"holds"}, states


@pytest.mark.exhaustive
@pytest.mark.parametrize("part", [part.name for part in PARTS if part.name not in ("samples", "vectors")])
def test_a_whole_part_on_the_emulated_device(part: str, tmp_path: Path) -> None:
    command = [*GPU, "--device", "emulated", "--json", "run.json", "--only", part, "--patience", "5"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.cuda
@pytest.mark.parametrize("part", [part.name for part in PARTS if part.name not in ("costs", "watching", "samples")])
def test_a_part_on_the_device(part: str, tmp_path: Path) -> None:
    command = [*GPU, "--json", "run.json", "--only", part, "--patience", "5"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr

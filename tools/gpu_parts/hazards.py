"""Part 6: what samerun says of programs with a planted hazard of CUDA, and of the same programs without it.

The programs are in tests/programs/cuda_hazards. A line that ends with `# culprit` is the one to be named.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from gpu_parts.checks import ROOT, Check, Facts, PartDevice, SkippedCheck

FOLDER = ROOT / "tests" / "programs" / "cuda_hazards"
LIMIT = 300.0
PLAIN_RUNS = 3
LINE_TOLERANCE = 2


@dataclass(frozen=True)
class PlantedHazard:
    """`command`: by which it is found: check, double or doctor. `named`: the kind of cause, or the switch.

    kind None: samerun does not see where it happens; that the runs differ is what must be said.
    """

    program: str
    command: str
    named: str | None
    only_on_cuda: bool = True


HAZARDS = (
    PlantedHazard("atomic_add", "check", "nondeterministic-operator"),
    PlantedHazard("atomic_add", "double", "nondeterministic-operator"),
    PlantedHazard("unwritten_memory", "double", "uninitialised-memory", only_on_cuda=False),
    PlantedHazard("tf32", "doctor", "fp32_precision", only_on_cuda=False),
    PlantedHazard("benchmark", "doctor", "cudnn_benchmark", only_on_cuda=False),
    PlantedHazard("late_workspace", "doctor", "cublas_workspace"),
    PlantedHazard("own_kernel", "check", None),
    PlantedHazard("graph", "check", None),
    PlantedHazard("unordered_streams", "check", None),
)
NEEDS_CUDA_ITSELF = {"own_kernel", "graph", "unordered_streams", "late_workspace"}
"""Programs whose clean twins need a device too."""
RECEIPTS = ("atomic_add", "atomic_add_clean", "graph_clean")
"""What `samerun run` must make repeat."""


def make_checks(device: PartDevice) -> Iterator[Check]:
    for hazard in HAZARDS:
        name = f"{hazard.program} by {hazard.command}"
        yield Check(name, partial(find_hazard, hazard, device), LIMIT)
        yield Check(f"{name}: its clean twin", partial(pass_clean_twin, hazard, device), LIMIT)
    for program in RECEIPTS:
        yield Check(f"two receipts of {program}", partial(compare_receipts, program, device), LIMIT)
    yield Check("switches on a device", partial(run_switch_tests, device), LIMIT)
    yield Check("samerun run changes nothing of a graph", partial(compare_outputs, "graph_clean", device), LIMIT)


def run_switch_tests(device: PartDevice) -> Facts:
    """The tests of every switch, which are written for pytest."""
    if device.is_emulated:
        raise SkippedCheck("emulated: tests/control/test_switches_cuda.py needs CUDA")
    if subprocess.run([sys.executable, "-c", "import pytest"], capture_output=True, check=False).returncode != 0:
        raise SkippedCheck("pytest is missing: carry its wheel, and what it needs")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/control/test_switches_cuda.py"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=LIMIT - 5, check=False)
    assert done.returncode == 0, done.stdout[-1500:] + done.stderr[-500:]
    return {"note": done.stdout.strip().splitlines()[-1]}


def run_samerun(words: list[str], folder: Path, device: PartDevice) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "ZOO_DEVICE": device.torch_name}
    return subprocess.run(
        [sys.executable, "-m", "samerun", *words], cwd=folder, env=environment, capture_output=True, text=True,
        timeout=LIMIT - 5, check=False,
    )  # fmt: skip


def in_folder(program: str) -> tempfile.TemporaryDirectory[str]:
    """A folder with the program, under a name that says nothing."""
    folder = tempfile.TemporaryDirectory(prefix="samerun-gpu-")
    shutil.copy(FOLDER / f"{program}.py", Path(folder.name) / "program.py")
    return folder


def read_report(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    try:
        found: dict[str, Any] = json.loads(done.stdout)
        return found
    except ValueError:
        raise AssertionError(f"no report; exit code {done.returncode}: {done.stderr[-1200:]}") from None


def find_culprit_line(program: str) -> int:
    lines = (FOLDER / f"{program}.py").read_text(encoding="utf-8").splitlines()
    return next(number for number, line in enumerate(lines, 1) if line.endswith("# culprit"))


WORDS = {
    "check": ["check", "--quiet", "--json", "-", "--vary", "rerun", "--repeat", "4", "program.py"],
    "double": ["check", "--quiet", "--json", "-", "--double", "--repeat", "5", "program.py"],
    "doctor": ["doctor", "--quiet", "--json", "-", "program.py"],
}


def find_hazard(hazard: PlantedHazard, device: PartDevice) -> Facts:
    if device.is_emulated and hazard.only_on_cuda:
        raise SkippedCheck("emulated: this hazard is of CUDA alone")
    with in_folder(hazard.program) as folder:
        # A race may not show on this device in so few runs; then samerun cannot see it either.
        results = {plain_result(Path(folder), device) for _ in range(PLAIN_RUNS if hazard.command == "check" else 0)}
        report = read_report(run_samerun(WORDS[hazard.command], Path(folder), device))
    if hazard.command == "doctor":
        found = find_switch(report, hazard.named)
        assert found["verdict"] in ("differs", "too late"), f"the doctor says of {hazard.named}: {found['verdict']}"
        return {"note": f"{found['name']}: {found['verdict']}, in force {found['in_force']}"}
    if report["verdict"] != "different" and len(results) == 1:
        raise SkippedCheck(f"{PLAIN_RUNS} runs alone gave the same bits: the hazard did not show")
    assert report["verdict"] == "different", f"verdict {report['verdict']}, alone {sorted(results)}"
    cause = report["cause"] or {}
    told = f"{cause.get('kind')} at line {cause.get('line')}"
    if hazard.named is not None:
        assert cause.get("kind") == hazard.named, f"named {told}, and it is {hazard.named}"
        wanted = find_culprit_line(hazard.program)
        assert abs(cause["line"] - wanted) <= LINE_TOLERANCE, f"named {told}, and it is line {wanted}"
    return {"note": told}


def find_switch(report: dict[str, Any], name: str | None) -> dict[str, Any]:
    found: dict[str, Any] = next(each for each in report["switches"] if each["name"] == name)
    return found


def plain_result(folder: Path, device: PartDevice) -> str:
    done = subprocess.run(
        [sys.executable, "program.py"], cwd=folder, env={**os.environ, "ZOO_DEVICE": device.torch_name},
        capture_output=True, text=True, timeout=LIMIT / 3, check=False,
    )  # fmt: skip
    assert done.returncode == 0, f"the program itself failed: {done.stderr[-1200:]}"
    found = re.search(r"^RESULT .*$", done.stdout, re.MULTILINE)
    assert found, f"no result: {done.stdout[-500:]}"
    return found[0]


def pass_clean_twin(hazard: PlantedHazard, device: PartDevice) -> Facts:
    require_device(hazard.program, device)
    with in_folder(f"{hazard.program}_clean") as folder:
        report = read_report(run_samerun(WORDS[hazard.command], Path(folder), device))
    if hazard.command == "doctor":
        found = find_switch(report, hazard.named)
        assert found["verdict"] not in ("differs", "too late"), f"the doctor says of {hazard.named}: {found['verdict']}"
        return {}
    told = [f"{each['kind']} at line {each['line']}" for each in (report["cause"], *report["others"]) if each]
    assert report["verdict"] == "same" and not told, f"verdict {report['verdict']}, causes {told}"
    return {}


def require_device(program: str, device: PartDevice) -> None:
    if device.is_emulated and program.removesuffix("_clean") in NEEDS_CUDA_ITSELF:
        raise SkippedCheck("emulated: the program needs CUDA")


def compare_receipts(program: str, device: PartDevice) -> None:
    require_device(program, device)
    with in_folder(program) as name:
        folder = Path(name)
        for receipt in ("a.json", "b.json"):
            done = run_samerun(["run", "--quiet", "--receipt", receipt, "program.py"], folder, device)
            assert done.returncode == 0, f"exit code {done.returncode}: {done.stderr[-1200:]}"
        done = run_samerun(["diff", "a.json", "b.json"], folder, device)
        assert done.returncode == 0, f"samerun diff: exit code {done.returncode}: {(done.stdout + done.stderr)[:1200]}"


def compare_outputs(program: str, device: PartDevice) -> None:
    require_device(program, device)
    with in_folder(program) as name:
        alone = plain_result(Path(name), device)
        done = run_samerun(["run", "--quiet", "--receipt", "a.json", "program.py"], Path(name), device)
    assert done.returncode == 0, done.stderr[-1200:]
    assert alone in done.stdout.splitlines(), f"alone {alone}, watched {done.stdout[-300:]}"

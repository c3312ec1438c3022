"""What people use beside torch: a program that uses a package does under samerun what it does alone.

A package that is not installed is skipped, and `make test` runs two of those that the environment of the tests has.
`make test-packages` installs all of them in an environment of its own and sets REQUIRE_PACKAGES: none may be absent.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest
from check_command import check, samerun
from repository_paths import TESTS

SCRIPTS = sorted((TESTS / "packages").glob("use_*.py"))
TIME_LIMIT = 600

OFFLINE = {
    "DO_NOT_TRACK": "1",
    "HF_HUB_OFFLINE": "1",
    "NO_ALBUMENTATIONS_UPDATE": "1",
    "OMP_NUM_THREADS": "1",
    "WANDB_MODE": "offline",
}
"""Nothing is fetched or sent by the packages while they run."""


def params() -> list[object]:
    every = "REQUIRE_PACKAGES" in os.environ or sys.prefix.endswith("-adapters")
    names = {script: script.stem.removeprefix("use_") for script in SCRIPTS}
    return [
        pytest.param(script, id=name, marks=[] if every else [pytest.mark.exhaustive]) for script, name in names.items()
    ]


def require_package(name: str) -> None:
    if importlib.util.find_spec(name) is None:
        if os.environ.get("REQUIRE_PACKAGES"):
            pytest.fail(f"{name} is not installed. `make test-packages` installs it.")
        pytest.skip(f"{name} is not installed; `make test-packages` runs this")


@pytest.mark.slow
@pytest.mark.parametrize("script", params())
def test_a_program_that_uses_a_package_runs_as_it_does_alone(script: Path, tmp_path: Path) -> None:
    require_package(script.stem.removeprefix("use_"))
    folders = {name: tmp_path / name for name in ("plain", "checked", "receipt")}
    for folder in folders.values():
        folder.mkdir()
    plain = subprocess.run(
        [sys.executable, str(script)], cwd=folders["plain"], capture_output=True, text=True,
        env={**os.environ, **OFFLINE}, timeout=TIME_LIMIT, check=False,
    )  # fmt: skip
    assert plain.returncode == 0, plain.stderr

    saved = tmp_path / "runs"
    code, report = check(["--save", str(saved), str(script)], folders["checked"], **OFFLINE)
    assert (code, report["verdict"]) == (0, "same"), report["trouble"] or report["causes"]
    outputs = sorted(saved.rglob("stdout"))
    assert len(outputs) >= 2
    assert {file.read_text() for file in outputs} == {plain.stdout}

    receipt = tmp_path / "receipt.json"
    watched = samerun(["run", "--quiet", "--receipt", str(receipt), str(script)], folders["receipt"], **OFFLINE)
    assert (watched.returncode, watched.stdout) == (plain.returncode, plain.stdout), watched.stderr
    assert receipt.exists()

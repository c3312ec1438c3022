"""Training scripts in the style of public ones: eight kinds, each clean and with four planted hazards.

A file in `programs/hazards/` plants one hazard in a trainer of `programs/trainers/`. Its first line says what is
wrong: the kind of the cause, the culprit (the statement, which stands there once) and the conditions under which it
shows, as options of `samerun check`. The rest is the change itself, which `git apply` makes.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest
from check_command import LINE_TOLERANCE, check
from repository_paths import PROGRAMS

HAZARDS = sorted((PROGRAMS / "hazards").glob("*.diff"))
CLEAN = {
    "dcgan": [],
    "distill": [],
    "gcn": [],
    "imagenet": ["workers"],
    "nanogpt": ["resume"],
    "ppo": [],
    "vae": [],
    "word_lm": ["resume"],
}
"""The trainers, and what they must not depend on beyond the surroundings."""
CHECKPOINTS = {
    "nanogpt": ("--stop-after 4 --checkpoint {folder}/ckpt.pt", "--init-from {folder}/ckpt.pt"),
    "word_lm": ("--stop-after 3 --save {folder}/model.pt", "--resume {folder}/model.pt"),
}


@dataclass(frozen=True)
class Hazard:
    """One hazard, planted in a trainer. `line`: of the culprit."""

    script: Path
    cause: str
    line: int
    options: list[str]
    threads: int


def planted(path: Path, folder: Path) -> Hazard:
    """The trainer with the hazard of a file, made in a folder."""
    header, change = path.read_text().split("\n", 1)
    told = json.loads(header.removeprefix("# "))
    script = folder / f"{path.stem.partition('-')[0]}.py"
    shutil.copyfile(PROGRAMS / "trainers" / script.name, script)
    subprocess.run(["git", "apply", "-"], input=change.encode(), cwd=folder, check=True)
    lines = [line.strip() for line in script.read_text().splitlines()]
    assert lines.count(told["culprit"]) == 1, told["culprit"]
    line = lines.index(told["culprit"]) + 1
    return Hazard(script, told["cause"], line, told["options"], told.get("threads", 1))


@pytest.mark.exhaustive
@pytest.mark.parametrize("path", HAZARDS, ids=lambda path: path.stem)
def test_a_planted_hazard_is_named(path: Path, tmp_path: Path) -> None:
    hazard = planted(path, tmp_path)
    threads = str(hazard.threads)
    code, report = check([*hazard.options, hazard.script.name], tmp_path, OMP_NUM_THREADS=threads)
    assert (code, report["verdict"]) == (1, "different")
    cause = report["cause"]
    assert (cause["kind"], cause["file"]) == (hazard.cause, hazard.script.name), cause
    assert abs(cause["line"] - hazard.line) <= LINE_TOLERANCE, (hazard.line, cause)


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name == "vae" else [pytest.mark.exhaustive]) for name in CLEAN]
)
def test_a_clean_trainer_is_the_same(name: str, tmp_path: Path) -> None:
    shutil.copyfile(PROGRAMS / "trainers" / f"{name}.py", tmp_path / f"{name}.py")
    options = ["--vary", ",".join(["rerun", "environment", *CLEAN[name]])]
    if "resume" in CLEAN[name]:
        interrupt, resume = CHECKPOINTS[name]
        options += ["--interrupt", interrupt, "--resume", resume]
    code, report = check([*options, f"{name}.py"], tmp_path, OMP_NUM_THREADS="1")
    outcomes = {one["name"]: one["outcome"] for one in report["variations"]}
    assert (code, report["verdict"], report["cause"]) == (0, "same", None), report["first_difference"]
    assert all(outcomes[name] == "same" for name in ("rerun", *CLEAN[name])), outcomes


def test_every_trainer_has_four_hazards() -> None:
    planted_in = [path.stem.partition("-")[0] for path in HAZARDS]
    assert {name: planted_in.count(name) for name in CLEAN} == dict.fromkeys(CLEAN, 4)

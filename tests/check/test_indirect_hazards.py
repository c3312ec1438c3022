"""Hazards that stand apart from where they show: in a helper module, a Dataset, a thread, late, or two at once.

Each folder of `programs/subtle/` is one program. The first line of its `train.py` says what is wrong: the cause, the
file and the statement of the culprit, and the conditions. The checker never sees that line.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from check_command import LINE_TOLERANCE, check
from repository_paths import PROGRAMS

FOLDERS = sorted((PROGRAMS / "subtle").iterdir())


def copied(folder: Path, to: Path) -> tuple[dict[str, Any], int]:
    """The header, and the line of the culprit; the program without its header lies in `to`."""
    shutil.copytree(folder, to, dirs_exist_ok=True)
    text = (to / "train.py").read_text()
    header: dict[str, Any] = json.loads(text.split("\n", 1)[0].removeprefix("# "))
    (to / "train.py").write_text("#\n" + text.split("\n", 1)[1])
    lines = [line.strip() for line in (to / header["file"]).read_text().splitlines()]
    assert lines.count(header["culprit"]) == 1, header["culprit"]
    return header, lines.index(header["culprit"]) + 1


@pytest.mark.exhaustive
@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_a_subtle_hazard_is_named(folder: Path, tmp_path: Path) -> None:
    header, line = copied(folder, tmp_path)
    code, report = check([*header["options"], "train.py"], tmp_path, OMP_NUM_THREADS="1")
    assert (code, report["verdict"]) == (1, "different")
    cause = report["cause"]
    assert (cause["kind"], cause["file"]) == (header["cause"], header["file"]), cause
    assert abs(cause["line"] - line) <= LINE_TOLERANCE, (line, cause)


@pytest.mark.exhaustive
def test_two_hazards_that_can_only_be_held_everywhere_are_named_in_order(tmp_path: Path) -> None:
    (folder,) = (folder for folder in FOLDERS if folder.name == "two_at_once")
    copied(folder, tmp_path)
    options = ["--fix", "on", "--vary", "rerun,hash_seed", "train.py"]
    code, report = check(options, tmp_path, OMP_NUM_THREADS="1")
    assert code == 1
    assert [(c["kind"], c["file"]) for c in report["causes"]] == [
        ("unseeded-torch", "train.py"),
        ("hash-order", "vocabulary.py"),
    ]

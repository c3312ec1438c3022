"""Real cases, made small: the right verdict, cause and line for each; the clean ones are never flagged.

The first line of each program in `zoo/` says what is wrong with it. The checker never sees that line.
A few run with the other tests and with the slow ones; the rest with `make test-exhaustive`.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from check_command import LINE_TOLERANCE, check
from repository_paths import ZOO

IN_CI = {"71", "c5"}
"""Clean programs, which must not be flagged; all others are run with the exhaustive tests."""
NAMES = {"PYTHONHASHSEED": "hash_seed", "listing-order": "listing_order", "cpu-capability": "cpu_capability"}
"""Conditions of the headers that are called otherwise on the command line."""
MEASURED = {"45_cpu_capability_train": 16}
"""Lines that are not the header's: here the initial weights (`uniform_`) have other bits already."""
NO_VARIATION = ("batch-size", "resume")


def params() -> list[object]:
    marks = {True: pytest.mark.slow, False: pytest.mark.exhaustive}
    return [pytest.param(path, id=path.stem, marks=marks[path.name[:2] in IN_CI]) for path in ZOO]


def options(header: dict[str, Any]) -> list[str]:
    """The conditions under which a program is measured to differ, as options of the command line.

    Nearly everything that trains differs on another CPU: that counts only where it is what is shown.
    """
    names = [NAMES.get(each, each) for each in header["differs"] if each not in NO_VARIATION]
    if header["cause"] != "cpu-capability":
        names = [name for name in names if name != "cpu_capability"]
    reads = header.get("reads", [])
    own: list[str] = []
    if "toggle" in header:
        own += ["--vary-env", "ZOO_TOGGLE=0,1"]
    if "ZOO_EVAL_BATCH" in reads:
        own += ["--vary-env", "ZOO_EVAL_BATCH=4,16"]
    if "ZOO_STOP_AT" in reads:
        own += ["--interrupt", f"ZOO_STOP_AT={header['stop_at']} ZOO_CKPT=zoo.ckpt", "--resume", "ZOO_RESUME=zoo.ckpt"]
    if header["cause"] == "none":
        names = ["rerun", "environment", *(["workers"] if "ZOO_WORKERS" in reads else [])]
    if own and header["cause"] != "none":
        names = ["none"]
    return ["--vary", ",".join(names), *own]


@pytest.mark.parametrize("path", params())
def test_zoo(path: Path, tmp_path: Path) -> None:
    text = path.read_text()
    header = json.loads(text.splitlines()[0].removeprefix("# "))
    script = tmp_path / path.name
    script.write_text("#\n" + text.split("\n", 1)[1])
    code, report = check([*options(header), path.name], tmp_path)
    if header["cause"] == "none":
        assert (code, report["verdict"], report["cause"]) == (0, "same", None)
        return
    assert (code, report["verdict"]) == (1, "different")
    found = report["cause"]
    assert (found["kind"], found["file"]) == (header["cause"], path.name), found
    culprit = MEASURED.get(path.stem, header["culprit_line"])
    assert abs(found["line"] - culprit) <= LINE_TOLERANCE, found

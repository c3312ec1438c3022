"""Run `samerun check` as a user does: a fresh process, a working directory, the JSON report."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any


def samerun(arguments: list[str], cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the command line; output is captured as text."""
    return subprocess.run(
        [sys.executable, "-m", "samerun", *arguments],
        cwd=cwd, capture_output=True, text=True, env={**os.environ, **environment}, timeout=600, check=False,
    )  # fmt: skip


def check(arguments: list[str], cwd: Path, **environment: str) -> tuple[int, dict[str, Any]]:
    """(exit code, report) of `samerun check`. Fails with the program's words when there is no report."""
    done = samerun(["check", "--quiet", "--json", "-", *arguments], cwd, **environment)
    try:
        return done.returncode, json.loads(done.stdout)
    except ValueError:
        raise AssertionError(f"no report; exit code {done.returncode}\n{done.stdout}\n{done.stderr}") from None


def wait_for(path: Path) -> None:
    """Until a program that runs beside the test has made a file; fails after a minute."""
    end = time.monotonic() + 60
    while not path.exists():
        assert time.monotonic() < end, path
        time.sleep(0.01)

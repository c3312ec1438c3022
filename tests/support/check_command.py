"""Run `samerun check` as a user does: a fresh process, a working directory, the JSON report."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

LINE_TOLERANCE = 2
"""So many lines a cause may be off: a statement's condition, or the head of its loop."""


def samerun(
    arguments: list[str], cwd: Path, timeout: float = 600, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run the command line; output is captured as text."""
    return subprocess.run(
        [sys.executable, "-m", "samerun", *arguments],
        cwd=cwd, capture_output=True, text=True, env={**os.environ, **environment}, timeout=timeout, check=False,
    )  # fmt: skip


def check(arguments: list[str], cwd: Path, timeout: float = 600, **environment: str) -> tuple[int, dict[str, Any]]:
    """(exit code, report) of `samerun check`. Fails with the program's words when there is no report."""
    done = samerun(["check", "--quiet", "--json", "-", *arguments], cwd, timeout, **environment)
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


def heed_interrupts() -> None:
    """For `preexec_fn`: what is started in the background of a shell ignores them, and so do its children."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


def list_running_commands(mark: str, except_pid: int) -> list[str]:
    """The command lines with `mark` in them of all processes but this one and `except_pid`."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            words = (entry / "cmdline").read_bytes().decode("utf-8", "replace")
        except OSError:
            continue
        if mark in words and int(entry.name) not in (except_pid, os.getpid()):
            found.append(words)
    return found

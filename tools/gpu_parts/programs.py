"""Part 5: the programs of tests/zoo_cuda, alone and under `samerun run`, which must make each of them repeat.

Each is two processes that mostly start, so that some run beside each other.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path

from gpu_parts.checks import ROOT, Check, Facts, PartDevice

PROGRAMS = sorted((ROOT / "tests" / "zoo_cuda").glob("*.py"))
LIMIT = 240.0
Ended = subprocess.CompletedProcess[str]


def make_checks(device: PartDevice) -> Iterator[Check]:
    runs = ProgramRuns(device)
    for path in PROGRAMS:
        yield Check(path.stem, partial(runs.check, path), LIMIT)


class ProgramRuns:
    """Runs ahead: while one check waits for its program, those that follow are at work."""

    def __init__(self, device: PartDevice) -> None:
        self.environment = {**os.environ, "ZOO_DEVICE": device.torch_name}
        self.workers = 1 if device.is_emulated else max(1, (os.cpu_count() or 1) * 3 // 4)
        self.pool = ThreadPoolExecutor(self.workers)
        self.futures: dict[Path, tuple[Future[Ended], Future[Ended]]] = {}

    def submit(self, path: Path) -> None:
        if path not in self.futures:
            watched = ["-m", "samerun", "run", "--quiet"]
            self.futures[path] = (self.pool.submit(self.run, [], path), self.pool.submit(self.run, watched, path))

    def run(self, words: list[str], path: Path) -> Ended:
        return subprocess.run(
            [sys.executable, *words, str(path)], env=self.environment, cwd=path.parent, capture_output=True, text=True,
            timeout=LIMIT - 10, check=False,
        )  # fmt: skip

    def check(self, path: Path) -> Facts:
        place = PROGRAMS.index(path)
        for ahead in PROGRAMS[place : place + self.workers]:
            self.submit(ahead)
        alone, watched = (future.result() for future in self.futures[path])
        assert watched.returncode == 0, f"under samerun: exit code {watched.returncode}: {watched.stderr[-1000:]}"
        said = watched.stdout
        assert "deterministic mode: bitwise equal" in said and "RESULT 1" in said.splitlines(), f"under samerun: {said}"
        return {"note": f"alone: {describe_alone(alone)}"}


def describe_alone(ended: Ended) -> str:
    """What torch does without samerun; that differs from version to version and is only told."""
    if ended.returncode != 0:
        return f"exit code {ended.returncode}: {(ended.stderr.strip().splitlines() or [''])[-1][:200]}"
    found = re.findall(r"^(?:default|deterministic) mode: (.*)$", ended.stdout, re.MULTILINE)
    return "; ".join(line[:120] for line in found)

"""The inside of a part: a process that runs named checks one after the other and reports each as it ends.

    python -m gpu_parts.checks PART --device cuda

One JSON object a line goes to the descriptor that `LINES_VARIABLE` names (standard output without it):
{"plan": [names]}, then {"begin": name, "limit": seconds} and {"check": name, "state": ...} for each check, then
{"end": "done"}, or {"end": "restart"} where the device is lost and the checks that are left need a new process.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
import time
import traceback
import unittest
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from fnmatch import fnmatchcase
from importlib import import_module
from pathlib import Path
from typing import Any

LINES_VARIABLE = "SAMERUN_GPU_LINES"
DONE_VARIABLE = "SAMERUN_GPU_DONE"
"""Environment: a file with the names of checks that are recorded already, as a JSON list."""
ROOT = Path(__file__).resolve().parents[2]
DEFAULT_LIMIT = 60.0
FAILURE_LINES = 12
Facts = dict[str, Any]
"""What a check found, beside that it holds: `ratios` (numbers), `aim`, `note`."""


class SkippedCheck(Exception):
    """A check cannot be made here; the text says why."""


@dataclass(frozen=True)
class Check:
    """`function` returns facts or None where the check holds, and raises where it does not."""

    name: str
    function: Callable[[], Facts | None]
    limit: float = DEFAULT_LIMIT
    """Seconds it may take."""


@dataclass(frozen=True)
class PartDevice:
    """Where a part computes: on CUDA, or on the CPU through emulated kernels (tests/support/cuda_emulation.py)."""

    name: str

    @property
    def is_emulated(self) -> bool:
        return self.name == "emulated"

    @property
    def torch_name(self) -> str:
        return "cpu" if self.is_emulated else "cuda"

    def kernels_in_force(self) -> AbstractContextManager[Any]:
        """Inside, tensors of `torch_name` are computed on by the CUDA kernels, real or emulated."""
        if not self.is_emulated:
            return nullcontext()
        from cuda_emulation import emulated

        return emulated(work_folder("emulation"))

    def synchronize(self) -> None:
        """Wait for the device, so that an error belongs to the check that caused it."""
        if not self.is_emulated and "torch" in sys.modules:
            torch = sys.modules["torch"]
            if torch.cuda.is_initialized():
                torch.cuda.synchronize()


def work_folder(name: str) -> Path:
    """A folder that is kept from one call to the next."""
    folder = Path(os.environ.get("SAMERUN_GPU_WORK", ROOT / "build" / "gpu")) / name
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def run_part(
    part: str, device: PartDevice, patterns: list[str], skipped: list[str], report: Callable[[Facts], None]
) -> int:
    """Run the checks of a part whose names fit one of `patterns`, fit none of `skipped`, and are not done.

    Returns the exit code: 0, or 3 to be started again.
    """
    done: set[str] = set()
    if os.environ.get(DONE_VARIABLE):
        done = set(json.loads(Path(os.environ[DONE_VARIABLE]).read_text(encoding="utf-8")))
    checks: list[Check] = list(import_module(f"gpu_parts.{part}").make_checks(device))
    report({"plan": [check.name for check in checks]})
    for check in checks:
        wanted, unwanted = (any(fnmatchcase(check.name, each) for each in some) for some in (patterns, skipped))
        if check.name in done or unwanted or not wanted:
            continue
        report({"begin": check.name, "limit": check.limit})
        result = run_check(check, device)
        report({"check": check.name, **result})
        if result["state"] == "failed" and device_is_lost(device):
            report({"end": "restart"})
            return 3
    report({"end": "done"})
    return 0


def run_check(check: Check, device: PartDevice) -> Facts:
    """How a check ended: its `state` (holds, failed, skipped), seconds, and what it found or why not."""
    began = time.monotonic()
    try:
        facts = check.function() or {}
        device.synchronize()
        result = {"state": "holds", **facts}
    except (SkippedCheck, unittest.SkipTest) as why:
        result = {"state": "skipped", "why": str(why)}
    except Exception as error:
        result = {"state": "failed", "failure": describe_failure(error)}
    if "torch" in sys.modules and not device.is_emulated:
        with contextlib.suppress(Exception):
            sys.modules["torch"].cuda.empty_cache()
    return {**result, "seconds": round(time.monotonic() - began, 2)}


def describe_failure(error: BaseException) -> list[str]:
    """The first lines of what went wrong, and where: for the page of results."""
    frames = traceback.extract_tb(error.__traceback__)
    ours = [frame for frame in frames if str(ROOT) in frame.filename] or list(frames)
    lines = f"{type(error).__name__}: {error}".splitlines()[:FAILURE_LINES]
    places = [f"{Path(f.filename).name}:{f.lineno} {f.name}" for f in ours[-3:]]
    return [line[:300] for line in lines] + ([f"at {' <- '.join(reversed(places))}"] if places else [])


def device_is_lost(device: PartDevice) -> bool:
    """Whether every further call would fail: after an illegal memory access a process cannot use CUDA any more."""
    try:
        device.synchronize()
    except Exception:
        return True
    return False


def open_report() -> Callable[[Facts], None]:
    """A function that writes one line; no child of this process inherits where to."""
    descriptor = int(os.environ.pop(LINES_VARIABLE, "1"))
    if descriptor > 2:
        os.set_inheritable(descriptor, False)

    def report(facts: Facts) -> None:
        data = (json.dumps(facts) + "\n").encode()
        while data:
            data = data[os.write(descriptor, data) :]

    return report


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("part")
    parser.add_argument("--device", choices=("cuda", "emulated"), default="cuda")
    parser.add_argument("--checks", action="append", metavar="PATTERN", help="only these; default: all")
    parser.add_argument("--skip", action="append", metavar="PATTERN", help="not these")
    options = parser.parse_args()
    device = PartDevice(options.device)
    return run_part(options.part, device, options.checks or ["*"], options.skip or [], open_report())


if __name__ == "__main__":
    from gpu_parts import checks  # under its own name, so that parts raise the same SkippedCheck

    sys.exit(checks.main())

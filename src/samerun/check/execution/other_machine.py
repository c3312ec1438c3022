"""Run a program on the machine on which this file is started: `python other_machine.py FOLDER`.

FOLDER/request.json says what to run, FOLDER/outcome.json will say how it ended. The program is ended when
FOLDER/order no longer says to go on, or when nobody has renewed the lease that the request names: then the machine that
asked is gone, or no longer sees the folder.
"""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

if __name__ == "__main__":  # started by its path: a command in front of it may start it anywhere, without PYTHONPATH
    sys.path[0] = str(Path(__file__).resolve().parents[3])

from samerun.base.errors import SamerunError
from samerun.base.machine import collect_machine_facts
from samerun.check.execution import processes

REQUEST, OUTCOME, ORDER, LEASE = "request.json", "outcome.json", "order", "lease"
GO_ON, STOP = "go on", "stop"
LEASE_SECONDS = 120.0
"""After so long without a new lease the program is ended."""
LOOK_SECONDS = 0.5
PLACED_PREFIXES = ("SLURM_", "PMI_", "PMIX_", "CUDA_VISIBLE_", "HIP_VISIBLE_", "ROCR_VISIBLE_", "NVIDIA_VISIBLE_")
"""Variables that say where a run was placed: those of this machine count, not those of the one that asked."""


@dataclass(frozen=True)
class RemoteRunRequest:
    """What to run, in plain values."""

    command: list[str]
    prefix: list[str]
    environment: dict[str, str]
    working_folder: str
    umask: int | None
    time_limit: float | None
    marker: str
    """The value of the variable by which all processes of the run are found."""
    lease: str
    """The file that the machine that asked writes anew as long as it lives."""


@dataclass(frozen=True)
class RemoteRunOutcome:
    """How it ended, and where."""

    exit_code: int
    seconds: float
    timed_out: bool
    others_seconds: float
    """Processor seconds that others took meanwhile."""
    possible_seconds: float
    host: str
    machine: dict[str, Any]
    """What results can depend on; machines on which it is equal are alike."""
    error: str = ""
    """Why the program could not be started."""
    hint: str | None = None


class Stopped(Exception):
    """Nobody waits for this run any more."""


class Orders:
    """Looks now and then whether the run is still wanted."""

    def __init__(self, folder: Path, lease: Path) -> None:
        self._order, self._lease = folder / ORDER, lease
        self._next = self._renewed = time.monotonic()
        self._last = _read(lease)

    def look(self, seconds: float) -> None:
        now = time.monotonic()
        if now < self._next:
            return
        self._next = now + LOOK_SECONDS
        lease = _read(self._lease)
        if lease != self._last:
            self._last, self._renewed = lease, now
        if _read(self._order) != GO_ON or now - self._renewed > LEASE_SECONDS:
            raise Stopped


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError:
        return ""


def collect_facts_that_results_depend_on() -> dict[str, Any]:
    """Processor with its instructions, cores, Python, libraries and GPUs of this machine."""
    facts = collect_machine_facts()
    del facts["system"]
    gpus = sorted(Path("/proc/driver/nvidia/gpus").glob("*/information"))
    facts["instructions"] = _read_values(Path("/proc/cpuinfo"), "flags")[:1]  # every core says the same
    facts["gpus"] = [model for path in gpus for model in _read_values(path, "Model")]
    return facts


def _read_values(path: Path, name: str) -> list[str]:
    """What a file with lines `name: value` says under a name."""
    lines = (line.partition(":") for line in _read(path).splitlines())
    return [value.strip() for word, _, value in lines if word.strip() == name]


def run_as_requested(folder: Path) -> RemoteRunOutcome:
    """Run what FOLDER/request.json says, to its end, its time limit, or until it is no longer wanted."""
    request = RemoteRunRequest(**json.loads((folder / REQUEST).read_text(encoding="utf-8")))
    (folder / REQUEST).unlink()  # it holds the whole environment of who asked
    orders = Orders(folder, Path(request.lease))
    placed = {name: value for name, value in os.environ.items() if name.startswith(PLACED_PREFIXES)}
    load = processes.MachineLoad()
    host, machine = os.uname().nodename, collect_facts_that_results_depend_on()
    try:
        start = processes.ProcessStart(
            tuple(request.command), {**request.environment, **placed}, folder, request.working_folder,
            request.umask, tuple(request.prefix), request.marker,
        )  # fmt: skip
        ended = processes.run_to_end(start, request.time_limit, orders.look, load)
    except SamerunError as error:
        return RemoteRunOutcome(-1, 0.0, False, 0.0, 0.0, host, machine, error.message, error.hint)
    return RemoteRunOutcome(ended.exit_code, ended.seconds, ended.timed_out, load.others, load.possible, host, machine)


def main(folder: Path) -> int:
    """Exit code 0: the outcome was written. 1: the run was ended, for nobody waits for it."""

    def stop(number: int, frame: Any) -> None:
        raise Stopped

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGHUP, stop)
    try:
        outcome = run_as_requested(folder)
    except Stopped:
        return 1
    (folder / OUTCOME).write_text(json.dumps(dataclasses.asdict(outcome)), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))

"""Start a program so that it and all its children can be ended, end them, and measure what others do meanwhile."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, NamedTuple

from samerun.base.errors import SamerunError
from samerun.record.config import CONFIG_VARIABLE

GRACE_SECONDS = 1.0
TAIL_BYTES = 1 << 16


@dataclass(frozen=True)
class ProcessStart:
    """A program to be started, in plain values."""

    command: tuple[str, ...]
    environment: Mapping[str, str]
    output_folder: Path
    """Where the files `stdout` and `stderr` are written."""
    working_folder: str
    umask: int | None
    prefix: tuple[str, ...]
    marker: str
    """The value of CONFIG_VARIABLE: all processes that carry it belong to the run."""


class ProcessEnd(NamedTuple):
    """How a program ended. exit_code: as of subprocess; -9 for one that cannot be killed."""

    exit_code: int
    seconds: float
    timed_out: bool


def run_to_end(
    start: ProcessStart, limit_seconds: float | None, on_tick: Callable[[float], None], load: MachineLoad
) -> ProcessEnd:
    """Run to the end, to the time limit or to an exception in `on_tick`; leaves no process of the run in any case.

    Raises SamerunError where the program cannot be started.
    """
    begin, begun = time.monotonic(), load.take_load_sample()
    timed_out = False
    with open(start.output_folder / "stdout", "wb") as stdout, open(start.output_folder / "stderr", "wb") as stderr:
        process = start_in_new_session(
            start.command, start.environment, stdout, stderr, start.working_folder, start.umask, start.prefix
        )
        try:
            timed_out = wait_and_return_whether_timed_out(process, limit_seconds, on_tick)
        finally:
            kill_process_tree(process, start.marker)
    seconds = time.monotonic() - begin
    load.add_others_cpu_time_since(begun)
    return ProcessEnd(-9 if process.returncode is None else process.returncode, seconds, timed_out)


def start_in_new_session(
    command: Sequence[str], environment: Mapping[str, str], stdout: IO[bytes], stderr: IO[bytes], working_folder: str,
    umask: int | None = None, command_prefix: Sequence[str] = (), inherited_fds: Sequence[int] = (),
) -> subprocess.Popen[bytes]:  # fmt: skip
    """Start in a session of its own, so that a Ctrl-C in the terminal reaches samerun alone.

    command_prefix: put in front of the command. inherited_fds: descriptors that stay open in it.
    Raises SamerunError where that cannot be done.
    """
    try:
        return subprocess.Popen(
            [*command_prefix, *command], stdin=subprocess.DEVNULL, stdout=stdout, stderr=stderr, env=dict(environment),
            cwd=working_folder, umask=-1 if umask is None else umask, start_new_session=True,
            pass_fds=tuple(inherited_fds),
        )  # fmt: skip
    except OSError as error:
        raise SamerunError(
            f"{command[0]} cannot be started: {error.strerror}.", hint="Is it installed and on PATH?"
        ) from error


def read_file_tail(path: Path) -> str:
    """The end of what a program wrote to a file."""
    with open(path, "rb") as file:
        file.seek(max(0, path.stat().st_size - TAIL_BYTES))
        return file.read().decode("utf-8", "replace")


def wait_and_return_whether_timed_out(
    process: subprocess.Popen[bytes], limit_seconds: float | None, on_tick: Callable[[float], None]
) -> bool:
    """Wait for the end, calling `on_tick` with the seconds so far; True if the time limit was reached first."""
    begin, pause = time.monotonic(), 0.005
    while process.poll() is None:
        now = time.monotonic() - begin
        if limit_seconds is not None and now > limit_seconds:
            return True
        on_tick(now)
        time.sleep(pause)
        pause = min(pause * 1.5, 0.1)
    return False


def kill_process_tree(
    process: subprocess.Popen[bytes], marker_value: str, marker_variable: str = CONFIG_VARIABLE
) -> None:
    """End a program, its process group, and whatever carries the run's mark in its environment."""
    if process.poll() is None:
        _signal_group(process.pid, signal.SIGTERM)
        end = time.monotonic() + GRACE_SECONDS
        while process.poll() is None and time.monotonic() < end:
            time.sleep(0.02)
    _signal_group(process.pid, signal.SIGKILL)
    for pid in find_pids_with_environ_variable(marker_value, marker_variable):
        sigkill_if_alive(pid)
    try:
        process.wait(timeout=5)
    except subprocess.TimeoutExpired:
        pass


def sigkill_if_alive(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        pass


def find_pids_with_environ_variable(value: str, variable: str) -> list[int]:
    """Processes whose environment names this run's configuration: they may have left the group."""
    wanted = f"{variable}={value}".encode()
    found = []
    for entry in sorted(Path("/proc").glob("[0-9]*")):
        if int(entry.name) == os.getpid():
            continue
        try:
            if wanted in (entry / "environ").read_bytes().split(b"\0"):
                found.append(int(entry.name))
        except OSError:
            continue
    return found


def _signal_group(pid: int, signal_number: signal.Signals) -> None:
    try:
        os.killpg(pid, signal_number)
    except (ProcessLookupError, PermissionError):
        pass


# --- sharing the machine: OpenMP threads that sleep while they wait, and how busy it was
PASSIVE_WAIT = {"OMP_WAIT_POLICY": "passive", "KMP_BLOCKTIME": "0"}
"""Threads that wait for each other sleep. Where others keep the cores busy, threads that spin instead take a hundred
times as long; the work is shared out in the same way, so that no bit changes."""
OWN_CHOICES = (*PASSIVE_WAIT, "GOMP_SPINCOUNT", "KMP_LIBRARY")
"""Where the user has set one of these, nothing is chosen."""
BUSY_SHARE = 0.4
"""From such a share of the machine on that others have taken, seconds say little about a program."""


def choose_openmp_passive_wait_variables(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables that let threads sleep while they wait; none where the user has chosen how they wait."""
    return {} if any(name in environment for name in OWN_CHOICES) else dict(PASSIVE_WAIT)


class LoadSample(NamedTuple):
    """The moment at which a run started, and the processor seconds spent so far by all and by this process."""

    monotonic_seconds: float
    machine_busy_seconds: float
    own_processor_seconds: float


@dataclass
class MachineLoad:
    """Processor time that others took while our own runs were made, added up over the runs."""

    others: float = 0.0
    possible: float = 0.0

    def take_load_sample(self) -> LoadSample:
        return LoadSample(time.monotonic(), read_machine_busy_cpu_seconds(), read_cpu_seconds_of_self_and_children())

    def add_others_cpu_time_since(self, start_sample: LoadSample) -> None:
        """After a run has ended and was waited for: its own processor time is then known."""
        began, busy, own = start_sample
        others = read_machine_busy_cpu_seconds() - busy - (read_cpu_seconds_of_self_and_children() - own)
        self.possible += (time.monotonic() - began) * (os.cpu_count() or 1)
        self.others += max(0.0, others)

    @property
    def busy_note(self) -> str:
        """A sentence for the report, or "" where the machine was ours."""
        share = self.others / self.possible if self.possible > 0 else 0.0
        if share < BUSY_SHARE:
            return ""
        return (
            f"The machine was busy: other programs took {share:.0%} of its processor time during the runs."
            " How long these took says little about the program."
        )


def read_machine_busy_cpu_seconds() -> float:
    """Processor seconds that anything has taken since the machine was started; 0 where it does not say."""
    try:
        with open("/proc/stat", encoding="ascii") as file:
            user, nice, system, _, _, irq, softirq, *rest = map(int, file.readline().split()[1:])
    except (OSError, ValueError):
        return 0.0
    stolen = rest[0] if rest else 0
    return float(user + nice + system + irq + softirq + stolen) / os.sysconf("SC_CLK_TCK")


def read_cpu_seconds_of_self_and_children() -> float:
    """Those of this process and of the children that it has waited for."""
    spent = os.times()
    return spent.user + spent.system + spent.children_user + spent.children_system

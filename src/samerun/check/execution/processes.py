"""Start a program so that it and all its children can be ended, and end them."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, Protocol

from samerun.base.errors import SamerunError
from samerun.record.config import CONFIG_VARIABLE

GRACE_SECONDS = 1.0
TAIL_BYTES = 1 << 16


def start_in_new_session(
    command: Sequence[str], environment: Mapping[str, str], out: IO[bytes], err: IO[bytes], folder: str,
    umask: int | None = None, prefix: Sequence[str] = (), keep: Sequence[int] = (),
) -> subprocess.Popen[bytes]:  # fmt: skip
    """Start in a session of its own, so that a Ctrl-C in the terminal reaches samerun alone. prefix: in front of it.

    keep: descriptors that stay open in it.
    Raises SamerunError where that cannot be done.
    """
    try:
        return subprocess.Popen(
            [*prefix, *command], stdin=subprocess.DEVNULL, stdout=out, stderr=err, env=dict(environment), cwd=folder,
            umask=-1 if umask is None else umask, start_new_session=True, pass_fds=tuple(keep),
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


class StartedProcess(Protocol):
    """What is asked of a started program: of one forked from a preloaded process too."""

    @property
    def pid(self) -> int: ...
    @property
    def returncode(self) -> int | Any: ...
    def poll(self) -> int | None: ...
    def wait(self, timeout: float | None = None) -> int: ...


def wait_with_time_limit(process: StartedProcess, time_limit: float | None, running: Callable[[float], None]) -> bool:
    """Wait for the end, calling `running` with the seconds so far; True if the time limit was reached first."""
    begin, pause = time.monotonic(), 0.005
    while process.poll() is None:
        now = time.monotonic() - begin
        if time_limit is not None and now > time_limit:
            return True
        running(now)
        time.sleep(pause)
        pause = min(pause * 1.5, 0.1)
    return False


def kill_process_tree(process: StartedProcess, mark: str, variable: str = CONFIG_VARIABLE) -> None:
    """End a program, its process group, and whatever carries the run's mark in its environment."""
    if process.poll() is None:
        _signal_group(process.pid, signal.SIGTERM)
        end = time.monotonic() + GRACE_SECONDS
        while process.poll() is None and time.monotonic() < end:
            time.sleep(0.02)
    _signal_group(process.pid, signal.SIGKILL)
    for pid in find_pids_with_mark(mark, variable):
        kill_if_alive(pid)
    try:
        process.wait(timeout=5)
    except subprocess.TimeoutExpired:
        pass


def kill_if_alive(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        pass


def find_pids_with_mark(mark: str, variable: str) -> list[int]:
    """Processes whose environment names this run's configuration: they may have left the group."""
    wanted = f"{variable}={mark}".encode()
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


def _signal_group(pid: int, number: Any) -> None:
    try:
        os.killpg(pid, number)
    except (ProcessLookupError, PermissionError):
        pass

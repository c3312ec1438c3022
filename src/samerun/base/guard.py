"""A small process that ends what samerun has started if samerun itself is killed, even by SIGKILL.

It waits at a pipe, which the kernel closes when samerun dies. This file is also the program of that process: it is
started with Python's own modules only, so that it is there in some milliseconds.

Why not `PR_SET_PDEATHSIG`? The watched program could see it, and may set it to something else for itself.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Literal

GuardKind = Literal["program", "folder", "temporary"]
PROGRAM: GuardKind = "program"
FOLDER: GuardKind = "folder"
TEMPORARY: GuardKind = "temporary"
"""What is guarded: a process by its number; all processes whose environment names a folder; these and the folder."""
_DISMISS, _ASK = b".", b"?"
_ANSWER_SECONDS = 5.0
_ROUNDS, _PAUSE_SECONDS = 50, 0.02


class GuardProcess:
    """One such process. `GuardProcess(PROGRAM, ...)` also tells which signals the whole process group was sent."""

    def __init__(self, kind: GuardKind, pid_or_folder: str) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._unanswered = 0
        if os.name != "posix" or not sys.executable:
            return
        before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())  # the mask is handed down
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", __file__, kind, pid_or_folder],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, bufsize=0, cwd="/",
                start_new_session=kind != PROGRAM,  # what is sent to our group must not end it, or must be seen by it
            )  # fmt: skip
        except OSError:
            pass  # too many processes or open files: then nothing is guarded
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def take_signals_sent_to_group(self) -> set[int]:
        """The signals that were sent to this process group since the last call, as far as they can be blocked."""
        process = self._process
        if process is None or process.stdin is None or process.stdout is None:
            return set()
        found: set[int] = set()
        try:
            process.stdin.write(_ASK)
            self._unanswered += 1
            while self._unanswered and select.select([process.stdout], [], [], _ANSWER_SECONDS)[0]:
                line = process.stdout.readline()
                self._unanswered -= 1 if line else self._unanswered  # nothing: it is gone
                found.update(int(word) for word in line.split())
        except (OSError, ValueError):
            pass
        return found

    def send_sigcont_to_guard(self) -> None:
        """Let it go on after the process group was stopped."""
        if self._process is not None:
            with suppress(OSError):
                self._process.send_signal(signal.SIGCONT)

    def dismiss(self) -> None:
        """Let it end without killing anything: nothing is left to be ended."""
        if self._process is not None and self._process.stdin is not None:
            with suppress(OSError):
                self._process.stdin.write(_DISMISS)

    def kill_guarded_unless_dismissed_and_wait(self) -> None:
        """Without `dismiss` before, what is guarded is ended now. Waits for that."""
        process, self._process = self._process, None
        if process is None:
            return
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                with suppress(OSError):
                    pipe.close()
        with suppress(OSError):
            process.send_signal(signal.SIGCONT)
        process.wait()


@contextmanager
def kill_marked_processes_on_death(environ_marker_folder: str | os.PathLike[str]) -> Iterator[None]:
    """A block in which processes are started whose environment names a folder: none of them outlives this one."""
    guard = GuardProcess(FOLDER, os.fspath(environ_marker_folder))
    try:
        yield
        guard.dismiss()
    finally:
        guard.kill_guarded_unless_dismissed_and_wait()


# --- in the process itself -------------------------------------------------------------------------------


def guard_process_main() -> None:
    os.closerange(3, 1 << 20)
    kind, name = sys.argv[1:]
    pid = int(name) if kind == PROGRAM else 0
    handle = -1
    if pid and hasattr(os, "pidfd_open"):
        try:
            handle = os.pidfd_open(pid)  # a number may be given to another process; this is never another's
        except OSError:
            return
    while word := os.read(0, 1):
        if word == _DISMISS:
            return
        if word == _ASK:
            with suppress(OSError):
                os.write(1, " ".join(str(number) for number in sorted(_take_pending_signals())).encode() + b"\n")
    if pid:
        with suppress(OSError):
            _send_sigkill_to_guarded_process(pid, handle)
        return
    _kill_marked_processes_until_none(os.fsencode(name))
    if kind == TEMPORARY:
        import shutil

        shutil.rmtree(name, ignore_errors=True)


def _take_pending_signals() -> set[int]:
    """Take the signals that wait for this process, all of which are blocked."""
    found: set[int] = set()
    while (info := signal.sigtimedwait(signal.valid_signals(), 0)) is not None:
        found.add(info.si_signo)
    return found


def _send_sigkill_to_guarded_process(pid: int, pidfd: int) -> None:
    if pidfd >= 0:
        signal.pidfd_send_signal(pidfd, signal.SIGKILL)
    else:
        os.kill(pid, signal.SIGKILL)


def _kill_marked_processes_until_none(environ_marker: bytes) -> None:
    """Again and again, until a look finds none: they may be starting others."""
    for _ in range(_ROUNDS):
        found = _find_marked_pids_and_session_mates(environ_marker)
        for pid in found:
            with suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        if not found:
            return
        time.sleep(_PAUSE_SECONDS)


def _find_marked_pids_and_session_mates(environ_marker: bytes) -> set[int]:
    """Living processes whose environment names the folder, and those of their sessions, which are of our making."""
    marked: set[int] = set()
    sessions: dict[int, int] = {}
    for name in os.listdir("/proc") if os.path.isdir("/proc") else []:
        if not name.isdigit() or int(name) == os.getpid():
            continue
        try:
            with open(f"/proc/{name}/stat", "rb") as file:
                fields = file.read().rpartition(b")")[2].split()
            if fields[0] in (b"Z", b"X"):
                continue
            sessions[int(name)] = int(fields[3])
            with open(f"/proc/{name}/environ", "rb") as file:
                if environ_marker in file.read():
                    marked.add(int(name))
        except OSError:
            continue
    made = {sessions[pid] for pid in marked} - {os.getsid(0)}
    return marked | {pid for pid, session in sessions.items() if session in made}


if __name__ == "__main__":
    guard_process_main()

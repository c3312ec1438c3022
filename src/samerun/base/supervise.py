"""Run a program as if this process were it, and still be there when it has ended.

The program keeps our terminal, process group, input and output. What a terminal sends (Ctrl-C, Ctrl-Z)
reaches it directly; what somebody sends to this process alone is passed on. If this process dies, the
program does too, as it would if it were this process.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import IO, Any, NoReturn

_FROM_KERNEL = 0x80
"""`si_code` of a signal that the terminal sends: the whole process group has got it."""
_PR_SET_PDEATHSIG = 1
_KEPT = {signal.SIGKILL, signal.SIGSTOP, signal.SIGCHLD} if os.name == "posix" else set()


@dataclass(frozen=True)
class Ended:
    """How a program ended: `exit_code`, or the number of the `signal` that ended it."""

    pid: int
    exit_code: int | None
    signal: int | None


def run(command: list[str], environment: Mapping[str, str], stdout: IO[Any] | None = None) -> Ended:
    """Run to the end. `stdout`: where its output goes; None: where ours does.

    Raises OSError if the program cannot be started.
    """
    if not hasattr(signal, "sigwaitinfo"):
        done = subprocess.Popen(command, env=dict(environment), stdout=stdout)
        return Ended(done.pid, done.wait(), None)
    watched = signal.valid_signals() - _KEPT - _synchronous()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, watched | {signal.SIGCHLD})
    parent = os.getpid()

    def prepare() -> None:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        _die_with(parent)

    try:
        process = subprocess.Popen(command, env=dict(environment), preexec_fn=prepare, stdout=stdout)
        ended = _wait(process.pid, watched | {signal.SIGCHLD})
        process.returncode = ended.exit_code if ended.signal is None else -ended.signal  # waited for already
        return ended
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def end_like(ended: Ended) -> NoReturn:
    """End this process as the program ended: with its exit code, or by its signal."""
    sys.stdout.flush()
    sys.stderr.flush()
    if ended.signal is None:
        os._exit(ended.exit_code or 0)
    try:
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # the program has left its own core dump
    except (ImportError, ValueError, OSError):
        pass
    try:
        signal.signal(ended.signal, signal.SIG_DFL)
    except (OSError, ValueError):
        pass  # SIGKILL has no handler to be taken away
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {ended.signal})
    os.kill(os.getpid(), ended.signal)
    os._exit(128 + ended.signal)


def _wait(pid: int, watched: set[Any]) -> Ended:
    while True:
        info: Any = signal.sigwaitinfo(watched)
        if info.si_signo != signal.SIGCHLD:
            if info.si_code != _FROM_KERNEL:
                try:
                    os.kill(pid, info.si_signo)
                except ProcessLookupError:
                    pass
            continue
        found, status = os.waitpid(pid, os.WNOHANG | os.WUNTRACED)
        if found != pid:
            continue
        if os.WIFSTOPPED(status):
            os.kill(os.getpid(), signal.SIGSTOP)  # so that the shell sees a stopped job; `fg` goes on here
            _go_on(pid)
        elif os.WIFSIGNALED(status):
            return Ended(pid, None, os.WTERMSIG(status))
        elif os.WIFEXITED(status):
            return Ended(pid, os.WEXITSTATUS(status), None)


def _go_on(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGCONT)
    except ProcessLookupError:
        pass


def _synchronous() -> set[Any]:
    """Signals that mean a fault of this process itself: blocking them would hide it."""
    return {signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGTRAP}


def _die_with(parent: int) -> None:
    """In the child: be killed when `parent` dies (Linux)."""
    try:
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
    except (OSError, AttributeError):
        return
    if os.getppid() != parent:  # it died before we could ask
        os._exit(137)

"""Run a program as if this process were it, and still be there when it has ended.

The program keeps our terminal, process group, input and output, and all descriptors that the shell has opened for it.
What a terminal sends (Ctrl-C, Ctrl-Z), and what somebody sends to the process group, reaches it directly; what is sent
to this process alone is passed on. If this process dies, the
program does too, as it would if it were this process.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import IO, Any, NoReturn

from samerun.base.guard import PROGRAM, GuardProcess

_FROM_KERNEL = 0x80
"""`si_code` of a signal that the terminal sends: the whole process group has got it."""
_GROUP_SECONDS = 0.005
_GROUP_STOP_SECONDS = 0.02
_KEPT = {signal.SIGKILL, signal.SIGSTOP, signal.SIGCHLD} if os.name == "posix" else set()


@dataclass(frozen=True)
class ProgramExit:
    """How a program ended: `exit_code`, or the number of the `signal` that ended it."""

    pid: int
    exit_code: int | None
    signal: int | None


def run_and_forward_signals(
    command: list[str], environment: Mapping[str, str], stdout: IO[Any] | None = None
) -> ProgramExit:
    """Run to the end. `stdout`: where its output goes; None: where ours does.

    Raises OSError if the program cannot be started.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    if not hasattr(signal, "sigwaitinfo") or not hasattr(os, "posix_spawnp"):
        done = subprocess.Popen(command, env=dict(environment), stdout=stdout, close_fds=False)
        return ProgramExit(done.pid, done.wait(), None)
    watched = signal.valid_signals() - _KEPT - _fault_signals()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, watched | {signal.SIGCHLD})
    try:
        pid = _posix_spawn_program(command, environment, stdout, before)
        guard = GuardProcess(PROGRAM, str(pid))
        try:
            ended = _wait_and_forward_signals(pid, guard, watched | {signal.SIGCHLD})
            guard.dismiss()
            return ended
        finally:
            guard.kill_guarded_unless_dismissed_and_wait()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def new_threads_with_signals_blocked() -> Iterator[None]:
    """A block in which a library may start threads that never take a signal sent to this process.

    Who supervises a program later blocks the signals in the main thread alone: any other thread would take them from
    it, and end the process or lose what the program should have got.
    """
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals() - _fault_signals())
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _posix_spawn_program(
    command: list[str], environment: Mapping[str, str], stdout: IO[Any] | None, signal_mask: set[Any]
) -> int:
    """The number of the program's process. It inherits what `exec` would hand over: the shell's descriptors too."""
    actions = [] if stdout is None else [(os.POSIX_SPAWN_DUP2, stdout.fileno(), 1)]
    return os.posix_spawnp(
        command[0],
        command,
        dict(environment),
        file_actions=actions,
        setsigmask=signal_mask,
        setsigdef=signals_python_ignores(),
    )


def signals_python_ignores() -> set[Any]:
    """Signals that Python ignores in itself: programs expect them as the shell has them."""
    names = ("SIGPIPE", "SIGXFSZ")
    return {getattr(signal, name) for name in names if hasattr(signal, name)}


def exit_as_program_did(program_exit: ProgramExit) -> NoReturn:
    """End this process as the program ended: with its exit code, or by its signal."""
    sys.stdout.flush()
    sys.stderr.flush()
    if program_exit.signal is None:
        os._exit(program_exit.exit_code or 0)
    try:
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # the program has left its own core dump
    except (ImportError, ValueError, OSError):
        pass
    try:
        signal.signal(program_exit.signal, signal.SIG_DFL)
    except (OSError, ValueError):
        pass  # SIGKILL has no handler to be taken away
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {program_exit.signal})
    os.kill(os.getpid(), program_exit.signal)
    os._exit(128 + program_exit.signal)


def _wait_and_forward_signals(pid: int, guard: GuardProcess, blocked_signals: set[Any]) -> ProgramExit:
    while True:
        info: Any = signal.sigwaitinfo(blocked_signals)
        if info.si_signo != signal.SIGCHLD:
            _forward_unless_sent_to_group(info, pid, guard)
            continue
        found, status = os.waitpid(pid, os.WNOHANG | os.WUNTRACED)
        if found != pid:
            continue
        if os.WIFSTOPPED(status):
            # Who stops the whole group stops us too in these moments: then we were told to go on when we get here.
            if signal.sigtimedwait({signal.SIGCONT}, _GROUP_STOP_SECONDS) is None:
                os.kill(os.getpid(), signal.SIGSTOP)  # so that the shell sees a stopped job; `fg` goes on here
            guard.send_sigcont_to_guard()
            _send_sigcont_if_alive(pid)
        elif os.WIFSIGNALED(status):
            return ProgramExit(pid, None, os.WTERMSIG(status))
        elif os.WIFEXITED(status):
            return ProgramExit(pid, os.WEXITSTATUS(status), None)


def _forward_unless_sent_to_group(info: Any, pid: int, guard: GuardProcess) -> None:
    """Pass a signal on, unless it was sent to the whole process group: then the program has got it already.

    Who sends to a group does so in one call of the kernel, which reaches the guard in the same moment or a little
    later than us.
    """
    if info.si_signo == signal.SIGCONT:
        # Passed on always: twice does no harm, and not at all would leave the program stopped.
        guard.send_sigcont_to_guard()
    else:
        if info.si_code != _FROM_KERNEL:
            time.sleep(_GROUP_SECONDS)
        if info.si_signo in guard.take_signals_sent_to_group() or info.si_code == _FROM_KERNEL:
            return
    try:
        os.kill(pid, info.si_signo)
    except ProcessLookupError:
        pass


def _send_sigcont_if_alive(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGCONT)
    except ProcessLookupError:
        pass


def _fault_signals() -> set[Any]:
    """Signals that mean a fault of this process itself: blocking them would hide it."""
    return {signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGTRAP}

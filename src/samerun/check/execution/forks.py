"""Runs as forks of a preloaded process: which plans may be forked, and the processes they are forked from.

A preloaded process has imported torch already. Its forks share more than fresh processes do: the layout of addresses,
the hash seed, what fresh memory holds. So a run is forked only if its plan pins all of these anyway, and only to be
compared with runs that were forked too (decision 34).
"""

from __future__ import annotations

import json
import os
import select
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from samerun.check.execution import processes
from samerun.check.execution.interruption import CHECKPOINTS
from samerun.check.plan import Plan
from samerun.check.variations.memory import command_prefix_without_aslr
from samerun.record.config import CONFIG_VARIABLE
from samerun.record.watching.native_entropy import PRELOAD as LIBRARIES
from samerun.record.watching.preloaded.imports import ORDER_FILE
from samerun.record.watching.preloaded.serve import MESSAGE_BYTES, PRELOAD, REFUSED

SWITCH = "SAMERUN_FORKS"
"""If set to "off", every run is a fresh process."""
PER_RUN_VARIABLES = (CONFIG_VARIABLE, CHECKPOINTS)
"""Variables whose values differ in each run."""
FORKED = "forked"
"""File beside the traces of a forked run: the modules that were imported beforehand."""
MAX_PRELOADED = 3
"""The most preloaded processes at once."""
FIRST_FREE_DESCRIPTOR = 200
"""Descriptors from here on do not collide with those of programs."""
LOST_EXIT_CODE = -9
"""Exit code of a child whose parent is gone."""

Key = tuple[object, ...]


class ForkServer:
    """The preloaded processes of a check, one for each environment that runs need."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "preloaded"
        self.disabled_reason = "" if sys.platform == "linux" and os.environ.get(SWITCH) != "off" else "switched off"
        """Why no run is forked any more; "" while runs may be forked."""
        self._noting = not self.disabled_reason
        self._order: list[str] | None = None
        self._processes: dict[Key, PreloadedProcess] = {}
        self._made = 0

    def should_record_imports(self, plan: Plan) -> bool:
        """Whether a fresh run should record how it imports torch.

        All fresh runs of a check do, or none: recording takes memory, and objects must lie at the same addresses.
        """
        return self._noting and runs_plain_python_script(plan)

    def load_recorded_imports(self, run_folder: Path) -> None:
        """Read what the first run recorded. If there is nothing, it did not import torch, and nothing is forked."""
        if self._order is not None or self.disabled_reason:
            return
        try:
            noted = json.loads((run_folder / ORDER_FILE).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return
        self._order, self.disabled_reason = list(noted["order"]), str(noted["reason"])

    def may_fork(self, plan: Plan) -> bool:
        """Whether this run may be forked, as far as is known."""
        return not self.disabled_reason and self._order is not None and pins_state_shared_by_forks(plan)

    def try_start_fork(
        self, plan: Plan, environment: Mapping[str, str], stdout: IO[bytes], stderr: IO[bytes]
    ) -> tuple[PreloadedProcess, ForkedProcess] | None:
        """Start a run as a fork, if `may_fork` allowed it; None if that failed. environment: all of it."""
        assert self._order is not None
        rest = {k: v for k, v in environment.items() if k not in PER_RUN_VARIABLES}
        key = (plan.command, plan.prefix, tuple(sorted(rest.items())))
        if key not in self._processes:
            self._made += 1
            while len(self._processes) >= MAX_PRELOADED:
                self._processes.pop(next(iter(self._processes))).close()
            blank = {**environment, **{name: "" for name in PER_RUN_VARIABLES if name in environment}}
            folder = self.folder / str(self._made)
            made = PreloadedProcess.start_or_return_reason(plan.command, plan.prefix, blank, self._order, folder)
            if isinstance(made, str):
                self.disabled_reason = made
                return None
            self._processes[key] = made
        parent = self._processes[key]
        Path(stdout.name).with_name(FORKED).write_text(",".join(self._order), encoding="utf-8")
        child = parent.try_fork_child(
            {k: environment[k] for k in PER_RUN_VARIABLES if k in environment}, stdout, stderr, plan.umask
        )
        if child is None:
            self.disabled_reason = "the preloaded process ended"
            return None
        return parent, child

    def stop_forking_if_run_is_unusable(self, run_folder: Path, run_failed: bool) -> bool:
        """Whether a forked run must be repeated as a fresh process; if so, nothing is forked any more.

        It must if the program imported something else than in its first run, or did not end well: whether it failed
        because it is a fork cannot be known.
        """
        refused = run_folder / REFUSED
        if refused.exists():
            self.disabled_reason = refused.read_text(encoding="utf-8")
        elif run_failed:
            self.disabled_reason = "a forked run failed"
        return bool(self.disabled_reason)

    def close(self) -> None:
        for process in self._processes.values():
            process.close()
        self._processes.clear()
        shutil.rmtree(self.folder, ignore_errors=True)


def was_forked(run_folder: Path) -> bool:
    """Whether the run with this folder was forked."""
    return (run_folder / FORKED).exists()


def runs_plain_python_script(plan: Plan) -> bool:
    """Whether the program is a file run by this Python, without interpreter options."""
    command = plan.command
    return len(command) > 1 and command[0] == sys.executable and command[1].endswith(".py")


def pins_state_shared_by_forks(plan: Plan) -> bool:
    """Whether the plan pins what forks have in common, and changes nothing that a fork inherits."""
    # Forks of one process have the same address layout, hash seed and fresh memory. If a plan leaves one of these free,
    # its runs must be able to differ in it, and as forks they could not: a real difference would stay hidden. Working
    # directory, home and preloaded libraries are fixed when the process starts, so a plan that changes them is not
    # forked either (decision 34).
    watch, environment = plan.watch, {**os.environ, **plan.environment}
    seed = environment.get("PYTHONHASHSEED", "random")
    still = (
        seed not in ("", "random") and plan.prefix == command_prefix_without_aslr() and "MALLOC_PERTURB_" in environment
    )
    elsewhere = plan.held or plan.copied or plan.other_home or LIBRARIES in plan.environment
    other = watch.executions or watch.kill_after or watch.kept_states or watch.replay or watch.start_method
    return still and watch.fresh_memory == "zeros" and not (elsewhere or other)


# --- one preloaded process -------------------------------------------------------------------------------------
class ForkedProcess:
    """A run forked from the preloaded process, with the interface of `subprocess.Popen` that is used here."""

    def __init__(self, pid: int, server_socket: socket.socket) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._server_socket = server_socket

    def poll(self) -> int | None:
        return self._receive_exit_code(0)

    def wait(self, timeout: float | None = None) -> int:
        """Raises subprocess.TimeoutExpired."""
        code = self._receive_exit_code(timeout)
        if code is None:
            raise subprocess.TimeoutExpired("fork", timeout or 0)
        return code

    def _receive_exit_code(self, timeout: float | None) -> int | None:
        if self.returncode is None and select.select([self._server_socket], [], [], timeout)[0]:
            self.returncode = int(_receive_reply_or_empty(self._server_socket).get("exit_code", LOST_EXIT_CODE))
        return self.returncode


class PreloadedProcess:
    """A process that has imported torch, and forks a child for each run that it is asked for."""

    def __init__(self, process: subprocess.Popen[bytes], server_socket: socket.socket, environ_marker: str) -> None:
        self._process, self._server_socket, self._environ_marker = process, server_socket, environ_marker

    @classmethod
    def start_or_return_reason(
        cls, command: Sequence[str], prefix: Sequence[str], environment: Mapping[str, str],
        preloaded_modules: Sequence[str], folder: Path,
    ) -> PreloadedProcess | str:  # fmt: skip
        """Start it with the program's own command line; the reason if forks would differ from fresh processes.

        Ends the process before anything is raised.
        """
        import fcntl

        folder.mkdir(parents=True)
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            try:
                number = fcntl.fcntl(theirs.fileno(), fcntl.F_DUPFD_CLOEXEC, FIRST_FREE_DESCRIPTOR)
            except OSError:
                ours.close()
                return "few files may be open at once"
        environ_marker = f"{number}:{','.join(preloaded_modules)}:{folder}"
        try:
            with open(folder / "stdout", "wb") as stdout, open(folder / "stderr", "wb") as stderr:
                process = processes.start_in_new_session(
                    command,
                    {**environment, PRELOAD: environ_marker},
                    stdout,
                    stderr,
                    os.getcwd(),
                    None,
                    prefix,
                    (number,),
                )
        finally:
            os.close(number)
        made = cls(process, ours, environ_marker)
        try:
            reply = _receive_reply_or_empty(ours)
        except BaseException:
            made.close()
            raise
        if reply.get("ready"):
            return made
        made.close()
        return str(reply.get("reason", "the preloaded process ended"))

    def try_fork_child(
        self, changed_environment: Mapping[str, str], stdout: IO[bytes], stderr: IO[bytes], umask: int | None
    ) -> ForkedProcess | None:
        """Fork a child with these variables changed; None if the process has ended."""
        request = json.dumps({"environment": dict(changed_environment), "umask": umask}).encode()
        try:
            socket.send_fds(self._server_socket, [request], [stdout.fileno(), stderr.fileno()])
            answer = _receive_reply_or_empty(self._server_socket)
        except OSError:
            return None
        return ForkedProcess(int(answer["pid"]), self._server_socket) if "pid" in answer else None

    def kill_child_tree(self, child: ForkedProcess, environ_marker: str) -> None:
        """End a child and all that it has started.

        What left its process group without being executed anew still shows the environment of this process.
        """
        processes.kill_process_tree(child, environ_marker)
        for pid in processes.find_pids_with_environ_variable(self._environ_marker, PRELOAD):
            if pid != self._process.pid:
                processes.sigkill_if_alive(pid)

    def close(self) -> None:
        """End it, whatever it is doing."""
        self._server_socket.close()
        end = time.monotonic() + processes.GRACE_SECONDS
        while self._process.poll() is None and time.monotonic() < end:
            time.sleep(0.005)
        processes.kill_process_tree(self._process, self._environ_marker, PRELOAD)


def _receive_reply_or_empty(server_socket: socket.socket) -> dict[str, Any]:
    try:
        reply: dict[str, Any] = json.loads(server_socket.recv(MESSAGE_BYTES) or b"{}")
    except OSError:
        return {}
    return reply

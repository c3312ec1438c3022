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
from samerun.check.variations.memory import fixed_layout_command
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


class Forks:
    """The preloaded processes of a check, one for each environment that runs need."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "preloaded"
        self.reason = "" if sys.platform == "linux" and os.environ.get(SWITCH) != "off" else "switched off"
        """Why no run is forked any more; "" while runs may be forked."""
        self._noting = not self.reason
        self._order: list[str] | None = None
        self._processes: dict[Key, PreloadedProcess] = {}
        self._made = 0

    def should_record_imports(self, plan: Plan) -> bool:
        """Whether a fresh run should record how it imports torch.

        All fresh runs of a check do, or none: recording takes memory, and objects must lie at the same addresses.
        """
        return self._noting and is_plain_script(plan)

    def load_recorded_imports(self, folder: Path) -> None:
        """Read what the first run recorded. If there is nothing, it did not import torch, and nothing is forked."""
        if self._order is not None or self.reason:
            return
        try:
            noted = json.loads((folder / ORDER_FILE).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return
        self._order, self.reason = list(noted["order"]), str(noted["reason"])

    def may_fork(self, plan: Plan) -> bool:
        """Whether this run may be forked, as far as is known."""
        return not self.reason and self._order is not None and pins_what_forks_share(plan)

    def start_fork(
        self, plan: Plan, environment: Mapping[str, str], out: IO[bytes], err: IO[bytes]
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
            made = PreloadedProcess.start(plan.command, plan.prefix, blank, self._order, folder)
            if isinstance(made, str):
                self.reason = made
                return None
            self._processes[key] = made
        parent = self._processes[key]
        Path(out.name).with_name(FORKED).write_text(",".join(self._order), encoding="utf-8")
        child = parent.fork_child(
            {k: environment[k] for k in PER_RUN_VARIABLES if k in environment}, out, err, plan.umask
        )
        if child is None:
            self.reason = "the preloaded process ended"
            return None
        return parent, child

    def must_repeat_in_fresh_process(self, folder: Path, failed: bool) -> bool:
        """Whether a forked run must be repeated as a fresh process; if so, nothing is forked any more.

        It must if the program imported something else than in its first run, or did not end well: whether it failed
        because it is a fork cannot be known.
        """
        refused = folder / REFUSED
        if refused.exists():
            self.reason = refused.read_text(encoding="utf-8")
        elif failed:
            self.reason = "a forked run failed"
        return bool(self.reason)

    def close(self) -> None:
        for process in self._processes.values():
            process.close()
        self._processes.clear()
        shutil.rmtree(self.folder, ignore_errors=True)


def was_forked(folder: Path) -> bool:
    """Whether the run with this folder was forked."""
    return (folder / FORKED).exists()


def is_plain_script(plan: Plan) -> bool:
    """Whether the program is a file run by this Python, without interpreter options."""
    command = plan.command
    return len(command) > 1 and command[0] == sys.executable and command[1].endswith(".py")


def pins_what_forks_share(plan: Plan) -> bool:
    """Whether the plan pins what forks have in common, and changes nothing that a fork inherits."""
    # Forks of one process have the same address layout, hash seed and fresh memory. If a plan leaves one of these free,
    # its runs must be able to differ in it, and as forks they could not: a real difference would stay hidden. Working
    # directory, home and preloaded libraries are fixed when the process starts, so a plan that changes them is not
    # forked either (decision 34).
    watch, environment = plan.watch, {**os.environ, **plan.environment}
    seed = environment.get("PYTHONHASHSEED", "random")
    still = seed not in ("", "random") and plan.prefix == fixed_layout_command() and "MALLOC_PERTURB_" in environment
    elsewhere = plan.held or plan.copied or plan.other_home or LIBRARIES in plan.environment
    other = watch.executions or watch.kill_after or watch.kept_states or watch.replay or watch.start_method
    return still and watch.fresh_memory == "zeros" and not (elsewhere or other)


# --- one preloaded process -------------------------------------------------------------------------------------
class ForkedProcess:
    """A run forked from the preloaded process, with the interface of `subprocess.Popen` that is used here."""

    def __init__(self, pid: int, line: socket.socket) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._line = line

    def poll(self) -> int | None:
        return self._receive_exit_code(0)

    def wait(self, timeout: float | None = None) -> int:
        """Raises subprocess.TimeoutExpired."""
        code = self._receive_exit_code(timeout)
        if code is None:
            raise subprocess.TimeoutExpired("fork", timeout or 0)
        return code

    def _receive_exit_code(self, seconds: float | None) -> int | None:
        if self.returncode is None and select.select([self._line], [], [], seconds)[0]:
            self.returncode = int(_receive_answer(self._line).get("exit_code", LOST_EXIT_CODE))
        return self.returncode


class PreloadedProcess:
    """A process that has imported torch, and forks a child for each run that it is asked for."""

    def __init__(self, process: subprocess.Popen[bytes], line: socket.socket, mark: str) -> None:
        self._process, self._line, self._mark = process, line, mark

    @classmethod
    def start(
        cls, command: Sequence[str], prefix: Sequence[str], environment: Mapping[str, str], modules: Sequence[str],
        folder: Path,
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
        mark = f"{number}:{','.join(modules)}:{folder}"
        try:
            with open(folder / "stdout", "wb") as out, open(folder / "stderr", "wb") as err:
                process = processes.start_in_new_session(
                    command, {**environment, PRELOAD: mark}, out, err, os.getcwd(), None, prefix, (number,)
                )
        finally:
            os.close(number)
        made = cls(process, ours, mark)
        try:
            answer = _receive_answer(ours)
        except BaseException:
            made.close()
            raise
        if answer.get("ready"):
            return made
        made.close()
        return str(answer.get("reason", "the preloaded process ended"))

    def fork_child(
        self, changed: Mapping[str, str], out: IO[bytes], err: IO[bytes], umask: int | None
    ) -> ForkedProcess | None:
        """Fork a child with these variables changed; None if the process has ended."""
        request = json.dumps({"environment": dict(changed), "umask": umask}).encode()
        try:
            socket.send_fds(self._line, [request], [out.fileno(), err.fileno()])
            answer = _receive_answer(self._line)
        except OSError:
            return None
        return ForkedProcess(int(answer["pid"]), self._line) if "pid" in answer else None

    def kill_child_tree(self, child: ForkedProcess, mark: str) -> None:
        """End a child and all that it has started.

        What left its process group without being executed anew still shows the environment of this process.
        """
        processes.kill_process_tree(child, mark)
        for pid in processes.find_pids_with_mark(self._mark, PRELOAD):
            if pid != self._process.pid:
                processes.kill_if_alive(pid)

    def close(self) -> None:
        """End it, whatever it is doing."""
        self._line.close()
        end = time.monotonic() + processes.GRACE_SECONDS
        while self._process.poll() is None and time.monotonic() < end:
            time.sleep(0.005)
        processes.kill_process_tree(self._process, self._mark, PRELOAD)


def _receive_answer(line: socket.socket) -> dict[str, Any]:
    try:
        found: dict[str, Any] = json.loads(line.recv(MESSAGE_BYTES) or b"{}")
    except OSError:
        return {}
    return found

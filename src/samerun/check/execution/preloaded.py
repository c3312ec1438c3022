"""A process that has imported torch already, from which runs are forked: samerun's end of it."""

from __future__ import annotations

import json
import os
import select
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from samerun.check.execution import processes
from samerun.record.watching.preloaded.serve import MESSAGE_BYTES, PRELOAD

HIGH = 200
"""Descriptors from here on are in no program's way."""
LOST = -9
"""Exit code of a child whose parent is gone."""


class Forked:
    """A run forked from the preloaded process; as `subprocess.Popen` where this room asks for one."""

    def __init__(self, pid: int, line: socket.socket) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._line = line

    def poll(self) -> int | None:
        return self._look(0)

    def wait(self, timeout: float | None = None) -> int:
        """Raises subprocess.TimeoutExpired."""
        code = self._look(timeout)
        if code is None:
            raise subprocess.TimeoutExpired("fork", timeout or 0)
        return code

    def _look(self, seconds: float | None) -> int | None:
        if self.returncode is None and select.select([self._line], [], [], seconds)[0]:
            self.returncode = int(_answer(self._line).get("exit_code", LOST))
        return self.returncode


class Preloaded:
    """One such process: started, asked for runs one after the other, ended."""

    def __init__(self, process: subprocess.Popen[bytes], line: socket.socket, mark: str) -> None:
        self._process, self._line, self._mark = process, line, mark

    @classmethod
    def start(
        cls, command: Sequence[str], prefix: Sequence[str], environment: Mapping[str, str], modules: Sequence[str],
        folder: Path,
    ) -> Preloaded | str:  # fmt: skip
        """Start it with the program's own command line; the reason where its forks would not be as fresh processes.

        Ends the process before anything is raised.
        """
        import fcntl

        folder.mkdir(parents=True)
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            try:
                number = fcntl.fcntl(theirs.fileno(), fcntl.F_DUPFD_CLOEXEC, HIGH)
            except OSError:
                ours.close()
                return "few files may be open at once"
        mark = f"{number}:{','.join(modules)}:{folder}"
        try:
            with open(folder / "stdout", "wb") as out, open(folder / "stderr", "wb") as err:
                process = processes.start(
                    command, {**environment, PRELOAD: mark}, out, err, os.getcwd(), None, prefix, (number,)
                )
        finally:
            os.close(number)
        made = cls(process, ours, mark)
        try:
            answer = _answer(ours)
        except BaseException:
            made.close()
            raise
        if answer.get("ready"):
            return made
        made.close()
        return str(answer.get("reason", "the preloaded process ended"))

    def run(self, changed: Mapping[str, str], out: IO[bytes], err: IO[bytes], umask: int | None) -> Forked | None:
        """Fork a child with these variables changed; None where the process is gone."""
        request = json.dumps({"environment": dict(changed), "umask": umask}).encode()
        try:
            socket.send_fds(self._line, [request], [out.fileno(), err.fileno()])
            answer = _answer(self._line)
        except OSError:
            return None
        return Forked(int(answer["pid"]), self._line) if "pid" in answer else None

    def kill_all(self, child: Forked, mark: str) -> None:
        """End a child and all that it has started.

        What left its process group without being executed anew still shows the environment of this process.
        """
        processes.kill_all(child, mark)
        for pid in processes.marked(self._mark, PRELOAD):
            if pid != self._process.pid:
                processes.kill(pid)

    def close(self) -> None:
        """End it, whatever it is doing."""
        self._line.close()
        end = time.monotonic() + processes.GRACE_SECONDS
        while self._process.poll() is None and time.monotonic() < end:
            time.sleep(0.005)
        processes.kill_all(self._process, self._mark, PRELOAD)


def _answer(line: socket.socket) -> dict[str, Any]:
    try:
        found: dict[str, Any] = json.loads(line.recv(MESSAGE_BYTES) or b"{}")
    except OSError:
        return {}
    return found

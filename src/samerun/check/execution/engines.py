"""Where the runs of a check are computed when that is not here: by a command that runs another one there, or by Ray."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import warnings
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import parse_qsl, urlsplit

from samerun.base.errors import SamerunError
from samerun.base.launch import find_trusted_program

RAY_RESOURCES = ("num_cpus", "num_gpus", "memory")
"""What a Ray address may ask for each run: `ray://head:10001?num_gpus=1`."""


class Job(Protocol):
    """A command that an engine runs."""

    def poll(self) -> int | None:
        """Its exit code; None while it waits or runs."""

    def cancel(self) -> None:
        """End it, whatever it does."""


class Engine(Protocol):
    """Runs commands on other machines that see the same files."""

    name: str
    """What the user wrote."""

    def start(self, command: Sequence[str], log: Path) -> Job:
        """Start a command; what it and the engine print goes to `log`. Raises SamerunError where it cannot be done."""


def parse_engine(text: str) -> Engine:
    """The engine that `--on` names. Raises SamerunError for what is neither a Ray address nor a program."""
    if text.startswith("ray://"):
        return RayEngine(text)
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise SamerunError(
            f"--on {text}: {error}.", hint='Write it as in a shell: --on "srun --gres gpu:1".'
        ) from error
    program = words[0] if words else "nothing"
    found = shutil.which(program) if os.sep in program else find_trusted_program(program)
    if found is None:
        raise SamerunError(
            f"--on {text}: {program} is not a program that can be started.",
            hint='Name a command that runs another one elsewhere ("srun --gres gpu:1", "ssh node2"), or ray://HOST:PORT.',
        )
    return CommandEngine(text, [found, *words[1:]])


class CommandEngine:
    """A command that is put in front of another one and returns with its end: srun, ssh."""

    def __init__(self, name: str, prefix: Sequence[str]) -> None:
        self.name, self._prefix = name, tuple(prefix)

    def start(self, command: Sequence[str], log: Path) -> Job:
        with open(log, "ab") as output:
            try:
                process = subprocess.Popen(
                    [*self._prefix, *command], stdin=subprocess.DEVNULL, stdout=output, stderr=output,
                    start_new_session=True,
                )  # fmt: skip
            except OSError as error:
                raise SamerunError(f"--on {self.name}: it cannot be started: {error.strerror}.") from error
        return _CommandJob(process)


class _CommandJob:
    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process

    def poll(self) -> int | None:
        return self._process.poll()

    def cancel(self) -> None:
        self._process.terminate()  # srun ends what it started, ssh hangs up
        try:
            self._process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


class RayEngine:
    """A Ray cluster: each command is a task of its own."""

    def __init__(self, address: str) -> None:
        """address: ray://HOST:PORT, with what each run needs behind a question mark. Raises SamerunError."""
        self.name = address
        parts = urlsplit(address)
        self._address = parts._replace(query="").geturl()
        self._resources = {}
        for key, value in parse_qsl(parts.query, keep_blank_values=True):
            try:
                self._resources[key] = float(value)
            except ValueError:
                key = ""
            if key not in RAY_RESOURCES:
                raise SamerunError(
                    f"--on {address}: {parts.query} is not understood.",
                    hint=f"Numbers of these can be asked for each run: {', '.join(RAY_RESOURCES)} (?num_gpus=1).",
                )
        self._ray: Any = None

    def start(self, command: Sequence[str], log: Path) -> Job:
        ray = self._ray = self._ray or self._connect()

        def call(command: list[str], log: str) -> int:  # local, so that Ray sends it as it is
            import subprocess

            with open(log, "ab") as output:
                return subprocess.call(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output)

        task = ray.remote(max_retries=0, **self._resources)(call)
        return _RayJob(ray, task.remote(list(command), str(log)), log)

    def _connect(self) -> Any:
        try:
            ray: Any = import_module("ray")
        except ImportError as error:
            raise SamerunError(
                f"--on {self.name}: Ray is not installed here.", hint='python -m pip install "ray[client]"'
            ) from error
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # it warns of what it then raises
                ray.init(self._address, logging_level="ERROR", log_to_driver=False)
        except Exception as error:  # whatever its client raises: no cluster, another version, a wrong port
            raise SamerunError(
                f"--on {self.name}: the cluster does not answer: {str(error).strip().splitlines()[0]}",
                hint="Is it running, of the same version of Ray and Python, with its client's port (10001)?",
            ) from error
        return ray


class _RayJob:
    def __init__(self, ray: Any, reference: Any, log: Path) -> None:
        self._ray, self._reference, self._log = ray, reference, log

    def poll(self) -> int | None:
        if not self._ray.wait([self._reference], timeout=0)[0]:
            return None
        try:
            return int(self._ray.get(self._reference))
        except Exception as error:  # a node that died, a task that was cancelled
            with open(self._log, "a", encoding="utf-8") as file:
                file.write(f"{error}\n")
            return -1

    def cancel(self) -> None:
        self._ray.cancel(self._reference, force=True)

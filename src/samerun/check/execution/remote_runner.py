"""Run plans on other machines: each is handed to an engine with what it needs, and some are begun before their turn."""

from __future__ import annotations

import dataclasses
import itertools
import json
import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from samerun.base.errors import SamerunError
from samerun.check.execution import other_machine, processes
from samerun.check.execution.engines import Engine, Job
from samerun.check.execution.runner import PlannedRun, PreparedRun, Progress, Runner

RENEW_SECONDS = 5.0
POLL_SECONDS = 0.1
STOP_SECONDS = 5.0
"""So long a run may take to end itself before its engine is asked to end it."""
LOG_CHARACTERS = 400


@dataclass
class _StartedRun:
    planned: PlannedRun
    prepared: PreparedRun
    job: Job
    begin: float

    def order_stop(self) -> None:
        (self.prepared.folder / other_machine.ORDER).write_text(other_machine.STOP, encoding="utf-8")

    def end(self) -> None:
        """End it, with all that it started, if it has not ended."""
        self.order_stop()
        limit = time.monotonic() + STOP_SECONDS
        while self.job.poll() is None and time.monotonic() < limit:
            time.sleep(POLL_SECONDS)
        if self.job.poll() is None:
            self.job.cancel()
        for name in (other_machine.REQUEST, other_machine.ORDER):  # the environment is nobody's who is given the traces
            (self.prepared.folder / name).unlink(missing_ok=True)
        self.prepared.clean_up()


class RemoteRunner(Runner):
    """A runner whose runs an engine computes, up to `at_once` of them at the same time.

    All must be computed on machines that are alike: where they are not, a difference between two runs says nothing
    about the program, and an experiment that takes it away may only have met the same machine twice.
    """

    def __init__(
        self, folder: Path, time_limit: float | None, progress: Progress, engine: Engine, at_once: int
    ) -> None:
        super().__init__(folder, time_limit, progress)
        self.engine, self.at_once = engine, at_once
        self.hosts: dict[str, None] = {}
        """The machines that computed a run, in the order in which they were first used."""
        self._first: tuple[str, other_machine.RemoteRunOutcome] | None = None
        self._planned: list[PlannedRun] = []
        self._started: dict[str, _StartedRun] = {}
        self._lease = folder / other_machine.LEASE
        self._closed = threading.Event()
        self._write_lease(0)
        self._renewer = threading.Thread(target=self._renew_lease, daemon=True)
        self._renewer.start()

    def _write_lease(self, number: int) -> None:
        with suppress(OSError):  # a full disk: whoever waits for it ends by itself
            self._lease.write_text(str(number), encoding="utf-8")

    def _renew_lease(self) -> None:
        for number in itertools.count(1):
            if self._closed.wait(RENEW_SECONDS):
                return
            self._write_lease(number)

    def close(self) -> None:
        """End what was begun and never asked for."""
        self._discard(list(self._started))
        self._closed.set()
        self._renewer.join()
        self._lease.unlink(missing_ok=True)
        super().close()

    @contextmanager
    def ahead(self, planned: Sequence[PlannedRun]) -> Iterator[None]:
        """Begin with these runs as machines become free; those that nobody asked for in the block are ended."""
        self._planned[:0] = planned
        try:
            yield
        finally:
            names = {each.name for each in planned}
            self._planned[:] = [each for each in self._planned if each.name not in names]
            self._discard([name for name in self._started if name in names])

    def notes(self) -> list[str]:
        made = f"The runs were made by --on {self.engine.name} on {', '.join(self.hosts)}"
        return [f"{made}, machines that are alike." if len(self.hosts) > 1 else f"{made}.", *super().notes()]

    def _discard(self, names: Sequence[str]) -> None:
        for name in names:
            self._started[name].order_stop()  # all at once: each may take its time
        for name in names:
            started = self._started.pop(name)
            started.end()
            shutil.rmtree(started.prepared.folder, ignore_errors=True)

    def _begin_planned(self) -> None:
        """While one run is waited for, begin with others."""
        while self._planned and len(self._started) + 1 < self.at_once:
            planned = self._planned.pop(0)
            self._started[planned.name] = self._start(planned)

    def _start(self, planned: PlannedRun) -> _StartedRun:
        prepared = self._prepare(planned.plan, planned.name)
        start, folder = prepared.start, prepared.folder
        request = other_machine.RemoteRunRequest(
            list(start.command), list(start.prefix), dict(start.environment), start.working_folder, start.umask,
            planned.time_limit, start.marker, str(self._lease),
        )  # fmt: skip
        files = {
            other_machine.REQUEST: json.dumps(dataclasses.asdict(request)),
            other_machine.ORDER: other_machine.GO_ON, other_machine.OUTCOME: "",
        }  # fmt: skip
        for name, text in files.items():
            (folder / name).touch(mode=0o600)
            (folder / name).write_text(text, encoding="utf-8")
        self.progress(f"asking {self.engine.name} for a machine", 0.0, "running")  # a cluster may take its time
        command = (sys.executable, str(Path(other_machine.__file__).resolve()), str(folder))
        return _StartedRun(planned, prepared, self.engine.start(command, folder / "engine"), time.monotonic())

    def _execute(
        self, planned: PlannedRun, on_tick: Callable[[float], None]
    ) -> tuple[PreparedRun, processes.ProcessEnd]:
        self._planned[:] = [each for each in self._planned if each.name != planned.name]
        if planned.name in self._started and self._started[planned.name].planned != planned:
            self._discard([planned.name])
        started = self._started.pop(planned.name, None) or self._start(planned)
        try:
            while (code := started.job.poll()) is None:
                self._begin_planned()
                on_tick(time.monotonic() - started.begin)
                time.sleep(POLL_SECONDS)
        finally:
            started.end()
        outcome = self._read_outcome(started, code)
        self._require_like_machines(planned.name, outcome)
        self.load.others += outcome.others_seconds
        self.load.possible += outcome.possible_seconds
        return started.prepared, processes.ProcessEnd(outcome.exit_code, outcome.seconds, outcome.timed_out)

    def _read_outcome(self, started: _StartedRun, exit_code: int) -> other_machine.RemoteRunOutcome:
        """Raises SamerunError where the engine did not run the program."""
        folder = started.prepared.folder
        text = (folder / other_machine.OUTCOME).read_text(encoding="utf-8")
        if not text:
            said = processes.read_file_tail(folder / "engine").strip()[-LOG_CHARACTERS:]
            raise SamerunError(
                f"--on {self.engine.name}: run {started.planned.name} ended with exit code {exit_code} before the"
                f" program did{': ' + said if said else ''}.",
                hint=f"The other machine must see {folder.parent} (put it elsewhere with TMPDIR or --save), this folder"
                f" and {sys.executable}, all by the same paths.",
            )
        outcome = other_machine.RemoteRunOutcome(**json.loads(text))
        if outcome.error:
            raise SamerunError(f"On {outcome.host}: {outcome.error}", hint=outcome.hint)
        return outcome

    def _require_like_machines(self, name: str, outcome: other_machine.RemoteRunOutcome) -> None:
        self.hosts[outcome.host] = None
        if self._first is None:
            self._first = name, outcome
        first_name, first = self._first
        unlike = [key for key in first.machine if first.machine[key] != outcome.machine.get(key)]
        if unlike:
            raise SamerunError(
                f"--on {self.engine.name}: run {name} was computed on {outcome.host}, run {first_name} on {first.host},"
                f" which is another kind of machine: {_describe(unlike[0], first.machine, outcome.machine)}."
                " A difference between them would say nothing about the program.",
                hint="Choose machines that are alike (srun --constraint). To compare two kinds of machine, make a"
                " receipt on each (samerun run) and compare them (samerun diff).",
            )


def _describe(key: str, first: dict[str, Any], other: dict[str, Any]) -> str:
    texts = [str(machine.get(key)) for machine in (other, first)]
    if max(map(len, texts)) > LOG_CHARACTERS // 4:
        return f"{key} differ"
    return f"{key} {texts[0]} and {texts[1]}"

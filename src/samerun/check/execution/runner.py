"""Run a plan in a process of its own and collect its traces; what to say if it could not be recorded."""

from __future__ import annotations

import errno
import filecmp
import itertools
import os
import shutil
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from samerun.base.errors import SamerunError
from samerun.base.launch import prepend_bootstrap_to_pythonpath
from samerun.check.execution import processes
from samerun.check.execution.processes import MachineLoad, choose_openmp_passive_wait_variables
from samerun.check.plan import CHECKPOINTS, RunPlan
from samerun.check.variations.folder_copies import (
    copy_folder,
    make_home_of_symlinks,
    path_of_copy_below,
    symlink_siblings_of_folder_and_parents,
)
from samerun.record.config import CONFIG_VARIABLE, ROLE_VARIABLE
from samerun.record.trace.run import (
    RunTraces,
    count_explicit_seeds,
    describe_cut_off_processes,
    describe_skipped_operators,
)

Progress = Callable[[str, float, Literal["running", "done"]], None]
"""Called with the run's name, seconds so far and its state."""


@dataclass
class Run:
    """A finished run and its traces."""

    name: str
    labels: tuple[str, ...]
    exit_code: int
    seconds: float
    folder: Path
    plan: RunPlan
    timed_out: bool = False
    traces: RunTraces = field(init=False)
    steps: int = field(init=False)
    events: int = field(init=False)
    operators: int = field(init=False)
    explicit_seeds: Counter[tuple[str, str, int]] = field(init=False)
    process_ids: tuple[int, ...] = field(init=False)
    skipped: list[str] = field(init=False)
    """What could not be compared, for the notes of the report. All these are known when the traces are deleted too."""

    def __post_init__(self) -> None:
        self.traces = RunTraces(self.folder)
        self.steps, self.events = self.traces.max_step_count(), self.traces.event_count()
        self.operators = self.traces.operator_count()
        self.explicit_seeds = count_explicit_seeds(self.traces)
        self.process_ids = tuple(trace.pid for trace in self.traces.traces.values())
        self.skipped = describe_skipped_operators(self.traces) + describe_cut_off_processes(self.traces)

    def delete_traces(self) -> None:
        """Delete the traces: they were compared and found the same, and can be large."""
        for trace in self.traces.traces.values():
            trace.path.unlink(missing_ok=True)
        self.traces.traces.clear()

    @property
    def is_failed(self) -> bool:
        return self.timed_out or self.exit_code != 0

    def read_output_tail(self, stream: Literal["stdout", "stderr"]) -> str:
        """The end of what the program wrote to "stdout" or "stderr"."""
        return processes.read_file_tail(self.folder / stream)

    def wrote_the_same_stdout(self, other: Run) -> bool:
        """Whether both programs wrote the same bytes to their standard output."""
        return filecmp.cmp(self.folder / "stdout", other.folder / "stdout", shallow=False)


class RunFailed(SamerunError):
    """The user's program did not end well, so there is nothing to compare."""

    def __init__(self, message: str, run: Run, *, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.run = run
        self.stderr_tail = run.read_output_tail("stderr").rstrip()
        """The end of the program's standard error: its folder may be gone when this is shown."""


@dataclass(frozen=True)
class PlannedRun:
    """A run that is to be made. time_limit: in seconds."""

    plan: RunPlan
    name: str
    time_limit: float | None
    labels: tuple[str, ...] = ()


@dataclass(frozen=True)
class PreparedRun:
    """A run whose folder is ready. shown: the path of that folder as the program is told it."""

    plan: RunPlan
    folder: Path
    shown: Path
    start: processes.ProcessStart

    def clean_up(self) -> None:
        """Delete the copies that only the running program needs."""
        for made in ("copy", "home"):
            shutil.rmtree(self.folder / made, ignore_errors=True)
        if self.shown != self.folder:
            self.shown.unlink(missing_ok=True)


class Runner:
    """Runs plans one after the other, each with a folder of its own under `folder`."""

    def __init__(self, folder: Path, time_limit: float | None, progress: Progress) -> None:
        self.folder = folder
        self.time_limit = time_limit
        self.progress = progress
        self.load = MachineLoad()
        self._link_numbers = itertools.count(1)

    def close(self) -> None:
        """Delete the links to the runs' folders."""
        shutil.rmtree(self.folder / "now", ignore_errors=True)

    def _make_fixed_length_symlink(self, folder: Path) -> Path:
        """A link to a run's folder whose path is as long as that of every other run; the folder itself if links fail.

        The program is told where to record. A longer path there moves objects in memory, and with them the order of
        whatever the program hashes by address: runs would differ by their names.
        """
        link = self.folder / "now" / f"{next(self._link_numbers):06d}"
        try:
            link.parent.mkdir(exist_ok=True)
            link.symlink_to(os.path.relpath(folder, link.parent), target_is_directory=True)
        except (OSError, NotImplementedError):
            return folder
        return link

    def ahead(self, planned: Sequence[PlannedRun]) -> AbstractContextManager[None]:
        """Tell which runs will probably be asked for inside of the block: other machines may begin with them."""
        return nullcontext()

    def notes(self) -> list[str]:
        """Sentences for the report about the machine."""
        return list(filter(None, [self.load.busy_note]))

    def run(self, planned: PlannedRun) -> Run:
        """Run to the end, to the time limit or to Ctrl-C; leaves no process of the run behind in any case."""
        name, labels = planned.name, planned.labels
        label = f"{name} ({', '.join(labels)})" if labels and name != f"varied-{labels[0]}" else name
        prepared, ended = self._execute(planned, lambda now: self.progress(label, now, "running"))
        self.progress(label, ended.seconds, "done")
        return Run(name, labels, ended.exit_code, ended.seconds, prepared.folder, prepared.plan, ended.timed_out)

    def _execute(
        self, planned: PlannedRun, on_tick: Callable[[float], None]
    ) -> tuple[PreparedRun, processes.ProcessEnd]:
        """Prepare a run and execute it here."""
        prepared = self._prepare(planned.plan, planned.name)
        try:
            return prepared, processes.run_to_end(prepared.start, planned.time_limit, on_tick, self.load)
        finally:
            prepared.clean_up()

    def _prepare(self, plan: RunPlan, name: str) -> PreparedRun:
        """Make the folder of a run with all that its plan asks for."""
        folder, here = self.folder / name, Path.cwd()
        try:
            folder.mkdir(parents=True)
            shown = self._make_fixed_length_symlink(folder)
            where = path_of_copy_below(here, folder / "copy") if plan.copied else here
            moved = (str(where), str(here)) if plan.copied else None
            plan = plan.with_watch(folder=str(shown), copied_folder=moved)
            if plan.copied:
                copy_folder(here, where, (*plan.without, str(self.folder)))
                symlink_siblings_of_folder_and_parents(here, where)
                plan = plan.with_environment(PWD=str(where))
            if plan.other_home or any(map(os.path.isabs, plan.without)):
                make_home_of_symlinks(folder / "home" / "other", [path for path in plan.without if os.path.isabs(path)])
                plan = plan.with_environment(HOME=str(folder / "home" / "other"))
            config = shown / "watch.json"
            config.write_text(plan.watch.to_json(), encoding="utf-8")
        except OSError as error:
            shutil.rmtree(folder, ignore_errors=True)  # nothing half written stays
            raise SamerunError(
                f"The folder for the traces cannot be written: {folder}: {error.strerror}.",
                hint=make_recording_failure_hint(f"the trace could not be made: {error.strerror}"),
            ) from error
        inherited = {**os.environ, **choose_openmp_passive_wait_variables(os.environ)}
        environment = prepend_bootstrap_to_pythonpath(
            {**inherited, **plan.environment, **plan.held, CONFIG_VARIABLE: str(config)}
        )
        environment.pop(ROLE_VARIABLE, None)
        if plan.own_checkpoints and CHECKPOINTS not in plan.environment:
            environment[CHECKPOINTS] = str(folder / "checkpoints")
            (folder / "checkpoints").mkdir()
        start = processes.ProcessStart(
            plan.command, environment, folder, str(where), plan.umask, plan.prefix, str(config)
        )
        return PreparedRun(plan, folder, shown, start)


# --- runs that could not be recorded ---------------------------------------------------------------------------
_SPACE = tuple(os.strerror(getattr(errno, name)) for name in ("ENOSPC", "EDQUOT", "EFBIG") if hasattr(errno, name))
_DESCRIPTORS = (os.strerror(errno.EMFILE), os.strerror(errno.ENFILE))
_FILE = ("the trace could not be written", "the trace could not be made", "the disk may be full")


def is_disk_failure_message(reason: str) -> bool:
    """Whether a file could not be created or written."""
    return any(said in reason for said in (*_SPACE, *_FILE))


def describe_folder_if_disk_failure(reason: str, trace_folder: Path) -> str:
    """ " in FOLDER" if the failure is about the disk, else ""."""
    return f" in {trace_folder}" if is_disk_failure_message(reason) else ""


def make_recording_failure_hint(reason: str) -> str:
    """What to do about a trace that could not be created, written or finished."""
    if any(said in reason for said in _DESCRIPTORS):
        return "Raise the limit of open files (ulimit -n)."
    if "RLIMIT_FSIZE" in reason:
        return "Raise the limit on the size of files (ulimit -f), or let the program set it by resource.setrlimit."
    if any(said in reason for said in _SPACE) or "the disk may be full" in reason:
        return "Free some space, or put the traces elsewhere with TMPDIR or --save."
    if is_disk_failure_message(reason):
        return "Put the traces elsewhere with TMPDIR or --save."
    if "samerun could not" in reason or "samerun's recorder failed" in reason:
        return "This is a bug in samerun, not in the program. Please report it."
    return ""

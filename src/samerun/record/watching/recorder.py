"""The recorder of one process: roles, threads, events. Interceptors call it; it calls nobody."""

from __future__ import annotations

import itertools
import os
import re
import sys
import threading
from collections.abc import Callable
from time import monotonic  # by name: the module's own may be watched
from typing import Any

from xxhash import xxh3_128_digest

from samerun.record.config import ROLE_VARIABLE, WatchConfig, to_original_path
from samerun.record.trace import format as f
from samerun.record.trace.writer import TraceWriter
from samerun.record.watching import sites
from samerun.record.watching.thread_state import Threads, ThreadState

_MASK64 = (1 << 64) - 1
NOTHING = b"\0" * 16
FULL_EMISSION = 64
"""Draws, clock and environment reads at one place are all recorded up to so many, then at powers of two."""

STEPS_LOST_SECONDS = 0.2
"""At most so much of the steps is lost for a receipt when the process is killed."""


class Recorder:
    """Collects the events of this process and writes them to its trace.

    The trace file is made at the first event, because only then is the role known (a DataLoader worker
    learns that it is one after the fork).
    """

    def __init__(self, config: WatchConfig) -> None:
        self.config = config
        self.role = ""
        self.step = 0
        self._local = Threads()
        self.writer: TraceWriter | None = None
        self.stopped = False
        self.failure = ""
        self.recording = config.depth != "steps" and not (config.operator_window and config.operator_window[0] > 1)
        self.enter_operators: Callable[[], None] | None = None
        self.leave_operators: Callable[[], None] | None = None
        self.root_models: dict[int, Any] = {}
        self.forget_values: Callable[[list[Any]], None] = lambda tensors: None
        self.clock: Any = None
        self.loader_count = 0
        self.own_generators: list[Any] | None = None if config.kept_states is None else []
        """Where states are kept: the generators that the program made, in their order."""
        self.sample_rows: Any = None
        """What follows each sample through the operators, where that is asked for."""
        self.replayer: Any = None
        """What gives the program another run's data, where that is asked for."""
        self.doubling: Any = None
        """Where operators are executed twice: samerun.record.watching.double.doubling.Doubling."""
        self.skipped_operators: dict[str, list[Any]] = {}
        """Operators that could not be digested: how often, and why the first time."""
        self.last_loss = NOTHING
        self.last_batch = NOTHING
        self.last_loss_value: float | None = None
        """The value of the last loss, where steps are kept."""
        self.end_callbacks: list[Callable[[], None]] = []
        self.step_callbacks: list[Callable[[], None]] = []
        self.fork_callbacks: list[Callable[[], None]] = []
        self.output_files: dict[str, None] = {}
        """Files that were opened for writing, in that order: they are digested at the end."""
        self.cleared_on_restart: list[dict[Any, Any]] = [self.output_files, self.skipped_operators]
        """What was met since the record began: emptied when another one begins."""
        self._threads = itertools.count(1)
        self._written = 0.0
        self._repeats: dict[tuple[Any, ...], int] = {}
        self._lock = threading.RLock()
        self._pid = os.getpid()
        self.thread.number, self.thread.role = 0, "main"

    @property
    def thread(self) -> ThreadState:
        return self._local.state

    # --- roles ---------------------------------------------------------------------------------------
    def process_role(self) -> str:
        """This process's name among the processes of the run, the same from run to run."""
        if not self.role:
            parent = os.environ.get(ROLE_VARIABLE, "")
            rank = os.environ.get("RANK") or os.environ.get("LOCAL_RANK")
            process = sys.modules.get("multiprocessing.process")
            name = process.current_process().name if process else "MainProcess"
            if rank is not None and "TORCHELASTIC_RUN_ID" in os.environ and name == "MainProcess":
                self.role = f"rank{rank}"
            elif not parent:
                self.role = "main"
            elif name != "MainProcess":
                self.role = f"{parent}/{name}"
            else:
                self.role = f"{parent}/sub"
        return self.role

    def set_role(self, role: str) -> None:
        """Give this process another role; only before its first event is written."""
        if self.writer is None:
            self.role = role

    def before_fork(self) -> None:
        with self._lock:
            if self.writer is not None:
                self.writer.flush()
            self.thread.fork_count += 1

    def after_fork_in_child(self) -> None:
        """After a fork: another trace, another role, nothing of the parent's written twice."""
        self._lock = threading.RLock()
        if self.writer is not None:
            self.writer._lock = threading.RLock()
            self.writer.drop()
            self.writer = None
        thread = self.thread
        self.role = f"{self.process_role()}{thread.role.removeprefix('main')}/fork{thread.fork_count}"
        os.environ[ROLE_VARIABLE] = self.role
        self._pid = os.getpid()
        self._threads = itertools.count(1)
        self._repeats.clear()
        self.step = 0
        thread.number, thread.role, thread.operator_count = 0, "main", 0
        thread.inside_samerun = thread.fork_count = 0
        self.end_callbacks.clear()
        self.skipped_operators.clear()
        for call in self.fork_callbacks:
            call()

    # --- threads -------------------------------------------------------------------------------------
    def child_thread_role(self, target: str) -> str:
        """Role of a thread that the present one is about to start."""
        state = self.thread
        number = state.child_counts[target] = state.child_counts.get(target, 0) + 1
        return f"{state.role}/{target}#{number}"

    def enter_thread(self, role: str) -> None:
        state = self.thread
        state.role, state.number = role, next(self._threads)
        self.emit(f.THREAD, name=role, inputs=state.number, phase=f.HOST)

    # --- events --------------------------------------------------------------------------------------
    def open_writer(self, failing: bool = False) -> TraceWriter | None:
        """The writer, made on first use; None when recording is over."""
        writer = self.writer
        if writer is not None:
            return writer
        if self.stopped:
            return None
        with self._lock:
            if self.writer is not None or self.stopped:
                return self.writer
            self.thread.inside_samerun += 1  # opening a file and reading the environment are events themselves
            try:
                return self._make_writer(failing)
            finally:
                self.thread.inside_samerun -= 1

    def _make_writer(self, failing: bool) -> TraceWriter | None:
        role = self.process_role()
        stem = re.sub(r"[^A-Za-z0-9_.-]+", ".", role)[:120]
        for number in itertools.count():
            name = f"{stem}.trace" if number == 0 else f"{stem}~{number}.trace"
            shown = role if number == 0 else f"{role}~{number}"
            try:
                self.writer = TraceWriter(os.path.join(self.config.folder, name), shown, self.config.copied_folder)
                break
            except FileExistsError:
                continue
            except OSError as error:
                if not failing:
                    self.stop(f"the trace could not be made: {error.strerror}")
                return None
        self.role = shown
        os.environ[ROLE_VARIABLE] = shown
        return self.writer

    def emit(
        self,
        kind: int,
        *,
        name: str = "",
        place: int = 0,
        aux: int = 0,
        inputs: int = 0,
        outputs: bytes = NOTHING,
        flags: int = 0,
        phase: int | None = None,
    ) -> None:
        """Write one event of this thread."""
        writer = self.writer or self.open_writer()
        if writer is None:
            return
        state = self.thread
        if state.number < 0:
            state.number, state.role = 0, "main"  # a thread torch made: it works for the main one
        if phase is None:
            phase = state.phase if state.phase >= 0 else f.HOST
        writer.append(
            f.EVENT.pack(
                kind, phase | flags, state.number, writer.intern_string(name), place, aux & 0xFFFFFFFF,
                inputs & _MASK64, outputs,
            )
        )  # fmt: skip

    def emit_step_leaves(self, leaves: list[tuple[str, bytes]], flags: int) -> None:
        """Write what a step's parts hold after it: (name, digest) each."""
        writer = self.writer or self.open_writer()
        if writer is None:
            return
        state, pack, string = self.thread, f.EVENT.pack, writer.intern_string
        if state.number < 0:
            state.number, state.role = 0, "main"
        for name, value in leaves:
            writer.append(pack(f.LEAF, f.BETWEEN | flags, state.number, string(name), 0, 0, 0, value))

    def emit_host_event(
        self,
        kind: int,
        name: str,
        *,
        aux: str = "",
        inputs: int = 0,
        value: bytes | None = None,
        outputs: bytes = NOTHING,
        flags: int = 0,
        thin: bool = False,
        user_only: bool = False,
        placed: tuple[str, int, bool] | None = None,
    ) -> None:
        """Write one host event, placed at the nearest user line.

        `value` is digested into the outputs. `thin`: record only the first ones at a place. `user_only`:
        nothing where no user line stands above.
        """
        if self.stopped or self.thread.inside_samerun:
            return
        file, line, direct = placed or sites.find_user_line()
        if user_only and not line:
            return
        if thin and not self.should_record((kind, name, file, line)):
            return
        writer = self.writer or self.open_writer()
        if writer is None:
            return
        self.emit(
            kind,
            name=name,
            place=writer.intern_location(file, line, self.thread.module) if line else 0,
            aux=writer.intern_string(aux),
            inputs=inputs,
            outputs=outputs if value is None else xxh3_128_digest(value),
            flags=flags | (f.DIRECT if direct else 0),
        )

    def variation_applies(self, what: str) -> bool:
        """Does a variation act at the user's present line? Only asked where it is set to vary."""
        only, spared = self.config.varied_line, self.config.unvaried_lines
        if only is None and not spared:
            return True
        if only is not None and only[0] != what:
            return False
        file, line = self._user_line()
        return (only is None or (file, line) == only[1:]) and (what, file, line) not in spared

    def is_pinned_here(self, name: str) -> bool:
        """Is a source held still, everywhere or at the user's present line (`name@file:line`)?"""
        names = self.config.pins
        if not names:
            return False
        if name in names:
            return True
        if not any(pin.startswith(name + "@") for pin in names):
            return False
        file, line = self._user_line()
        return f"{name}@{file}:{line}" in names

    def has_pin(self, name: str) -> bool:
        """Is a source held still anywhere in the program?"""
        return any(pin.split("@", 1)[0] == name for pin in self.config.pins)

    def _user_line(self) -> tuple[str, int]:
        """The user's present line, as the trace names it."""
        file, line, _ = sites.find_user_line()
        return to_original_path(file, self.config.copied_folder), line

    def record_draw(self, generator: str, function: str, state: Callable[[], bytes]) -> None:
        """A draw from a generator in the program's own hands; `state` digests it as it is before."""
        file, line, direct = sites.find_user_line()
        if not line or not self.should_record((generator, function, file, line)):
            return
        self.emit_host_event(f.DRAW, generator, aux=function, outputs=state(), placed=(file, line, direct))

    def keep_generator(self, generator: Any) -> None:
        """The program made a generator of its own: its state is kept, where states are."""
        kept = self.own_generators
        if kept is not None and sites.find_user_line()[1] and not any(each is generator for each in kept):
            kept.append(generator)

    def should_record(self, key: tuple[Any, ...]) -> bool:
        """True for the first `FULL_EMISSION` events of a key, then at powers of two."""
        seen = self._repeats.get(key, 0) + 1
        self._repeats[key] = seen
        return seen <= FULL_EMISSION or not (seen & (seen - 1))

    def count_skipped(self, operator: str, reason: str) -> None:
        """An operator is left out of the trace, because its tensors have no values or cannot be read."""
        self.skipped_operators.setdefault(operator, [0, reason[:200]])[0] += 1

    def end_step(self, root: bytes) -> None:
        """An optimizer step ended; `root` is the digest of its leaves."""
        self.step += 1
        self.emit(f.STEP, inputs=self.step, outputs=root, phase=f.BETWEEN)
        window, config = self.config.operator_window, self.config
        if window is not None:
            self.recording = window[0] <= self.step + 1 <= window[1]
        elif config.depth == "auto" and self.recording:
            self.recording = self.thread.operator_count < config.ops_limit
        for call in self.step_callbacks:
            call()
        if config.receipt and monotonic() - self._written >= STEPS_LOST_SECONDS and self.writer is not None:
            self.writer.flush()
            self._written = monotonic()
        if config.max_steps is not None and self.step >= config.max_steps and self.thread.number == 0:
            sys.stdout.flush()
            os._exit(0)
        if config.kill_after is not None and self.step == config.kill_after[0] and self.thread.number == 0:
            if self.writer is not None:
                self.writer.flush()  # SIGKILL leaves no time for it
            os.kill(os.getpid(), config.kill_after[1])

    # --- the end -------------------------------------------------------------------------------------
    def stop(self, reason: str) -> None:
        """Record nothing more; the reason is kept in the trace's header where there is one."""
        if not self.stopped:
            self.failure = reason
            writer = self.writer or self.open_writer(failing=True)
            self.stopped = True
            if writer is not None:
                writer.fail(reason)
            self.writer = None

    def finish(self) -> None:
        """Last events, then the end mark. Called at exit and before `os._exit`."""
        if os.getpid() != self._pid:
            return
        calls = [] if self.stopped and self.writer is None else list(self.end_callbacks)
        for call in calls:
            try:
                call()
            except Exception as error:
                self.stop(f"samerun could not finish the trace: {error!r}")
        for name, (count, reason) in list(self.skipped_operators.items()):
            if writer := self.open_writer():
                self.emit(f.SKIPPED, name=name, aux=writer.intern_string(reason), inputs=count, phase=f.HOST)
        if self.writer is not None:
            self.writer.close()
            self.writer = None
        self.stopped = True

    def restart(self, config: WatchConfig) -> None:
        """After `finish`: another trace, in another folder, of what this process does from now on."""
        self.config, self.failure, self.role = config, "", ""
        self.step, self.last_loss, self.last_batch = 0, NOTHING, NOTHING
        for one in (self._repeats, *self.cleared_on_restart, self.thread.child_counts):
            one.clear()
        # Forks, threads and loaders are named by their number: it starts again with the record.
        self.loader_count, self._threads = 0, itertools.count(1)
        self.thread.number, self.thread.role, self.thread.operator_count = 0, "main", 0
        self.recording = config.depth != "steps" and not (config.operator_window and config.operator_window[0] > 1)
        if self.recording and self.enter_operators is not None:
            self.enter_operators()
        for call in self.fork_callbacks:  # another trace, here too: it numbers its strings anew
            call()
        self.stopped = False

    def pause(self) -> None:
        """After `finish`: operators of this thread are no longer looked at, until another record begins."""
        self.recording = False
        if self.leave_operators is not None:
            self.leave_operators()

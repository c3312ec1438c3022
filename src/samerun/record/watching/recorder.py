"""The recorder of one process: roles, threads, events. Interceptors call it; it imports none of them."""

from __future__ import annotations

import itertools
import os
import re
import sys
import threading
from collections.abc import Callable
from time import monotonic  # by name: the module's own may be watched
from typing import Any, Literal

from xxhash import xxh3_128_digest

from samerun.record.config import ROLE_VARIABLE, WatchConfig, to_original_path
from samerun.record.trace import format as f
from samerun.record.trace.writer import TraceWriter
from samerun.record.watching import stack_frames
from samerun.record.watching.stack_frames import UserLine
from samerun.record.watching.thread_state import ThreadLocalState, ThreadState

_MASK64 = (1 << 64) - 1
NOTHING = b"\0" * 16
FULL_EMISSION = 64
"""Draws, clock and environment reads of one line are all recorded up to this number, then at powers of two."""

STEPS_LOST_SECONDS = 0.2
"""A receipt loses at most the steps of this time when the process is killed."""


class Recorder:
    """Collects the events of this process and writes them to its trace.

    The trace file is created at the first event, because only then is the role known: a DataLoader worker learns that
    it is one after the fork.
    """

    def __init__(self, config: WatchConfig) -> None:
        self.config = config
        self.role, self.failure, self.step = "", "", 0
        self._local = ThreadLocalState()
        self.writer: TraceWriter | None = None
        self.stopped, self._written = False, 0.0
        self.recording = config.depth != "steps" and not (config.operator_window and config.operator_window[0] > 1)
        self.enter_operators: Callable[[], None] | None = None
        self.leave_operators: Callable[[], None] | None = None
        self.root_models: dict[int, Any] = {}
        self.thread_of_root_model: dict[int, int] = {}  # of those that another thread than the main one called first
        self.drop_known_digests: Callable[[list[Any]], None] = lambda tensors: None
        self.take_collective_writes: Callable[[Any], Any] = lambda work: ()
        self.note_collective_complete: Callable[[Any], None] = lambda writes: None
        self.begin_recording_reads: Callable[[], None] = lambda: None
        """Once the order may vary, numbers that are read from tensors are recorded: they are results."""
        self.clock: Any = None
        self.loader_count = 0
        self.own_generators: list[Any] | None = None if config.kept_states is None else []
        """The generators that the program made, in that order, if states are kept; else None."""
        self.sample_rows: Any = None
        """SampleRows, if each sample is followed through the operators."""
        self.replayer: Any = None
        """Replayer, if the program is given another run's data."""
        self.doubling: Any = None
        """Doubling, if operators are executed twice."""
        self.numbers: Any = None
        """StepValueRecorder, if what is computed is written down as numbers."""
        self.skipped_operators: dict[str, list[Any]] = {}
        """Operators that could not be digested: how often, and why at the first time."""
        self.last_batch = NOTHING
        self.last_loss_value: float | None = None
        """The value of the last loss, if steps are kept."""
        self.end_callbacks: list[Callable[[], None]] = []
        self.step_callbacks: list[Callable[[], None]] = []
        self.fork_callbacks: list[Callable[[], None]] = []
        self.output_files: dict[str, None] = {}
        """Files that were opened for writing, in that order: digested at the end of the process."""
        self.cleared_on_restart: list[dict[Any, Any]] = [self.output_files, self.skipped_operators]
        """Collections that belong to one record: emptied when another one begins."""
        self._threads, self.order_may_vary = itertools.count(1), False
        self._repeats: dict[tuple[Any, ...], int] = {}
        self._lock, self._pid = threading.RLock(), os.getpid()
        self.thread.number, self.thread.role = 0, "main"

    @property
    def thread(self) -> ThreadState:
        return self._local.state

    # --- roles ---------------------------------------------------------------------------------------
    def process_role_path(self) -> str:
        """The name of this process among those of the run, equal from run to run (a process number is not)."""
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

    def set_role_if_no_event_yet(self, role: str) -> None:
        """Give this process another role; ignored once its first event is written."""
        if self.writer is None:
            self.role = role

    def flush_and_count_fork(self) -> None:
        with self._lock:
            if self.writer is not None:
                self.writer.flush()
            self.thread.fork_count += 1

    def begin_new_trace_in_forked_child(self) -> None:
        """In a forked child: start another trace under another role, and drop the parent's pending events."""
        self._lock = threading.RLock()
        if self.writer is not None:
            self.writer._lock = threading.RLock()
            self.writer.close_without_end_mark(is_file_of_this_process=False)
            self.writer = None
        thread = self.thread
        self.role = f"{self.process_role_path()}{thread.role.removeprefix('main')}/fork{thread.fork_count}"
        os.environ[ROLE_VARIABLE] = self.role
        self._pid = os.getpid()
        self._threads, self.order_may_vary = itertools.count(1), False
        self._repeats.clear()
        self.step = 0
        thread.number, thread.role, thread.operator_count = 0, "main", 0
        thread.inside_samerun = thread.fork_count = 0
        self.end_callbacks.clear()
        self.skipped_operators.clear()
        for call in self.fork_callbacks:
            call()

    # --- threads -------------------------------------------------------------------------------------
    def count_child_and_make_thread_role(self, thread_name: str) -> str:
        """The role of a thread that this thread is about to start."""
        state = self.thread
        self.note_order_may_vary()
        number = state.child_counts[thread_name] = state.child_counts.get(thread_name, 0) + 1
        return f"{state.role}/{thread_name}#{number}"

    def note_order_may_vary(self) -> None:
        """From the first thread, or the first result that is taken as it comes, on: reads and the last memory count."""
        if not self.order_may_vary:
            self.order_may_vary = True
            self.begin_recording_reads()

    def number_and_emit_thread(self, role: str) -> None:
        state = self.thread
        state.role, state.number = role, next(self._threads)
        self.emit(f.THREAD, name=role, inputs=state.number, phase=f.HOST)

    # --- events --------------------------------------------------------------------------------------
    def open_writer(self, after_failure: bool = False) -> TraceWriter | None:
        """The trace writer, created at first use; None if recording is over."""
        writer = self.writer
        if writer is not None:
            return writer
        if self.stopped:
            return None
        with self._lock:
            if self.writer is not None or self.stopped:
                return self.writer
            self.thread.inside_samerun += 1  # opening a file and reading the environment would be recorded too
            try:
                return self._create_trace_file_or_stop(after_failure)
            finally:
                self.thread.inside_samerun -= 1

    def _create_trace_file_or_stop(self, after_failure: bool) -> TraceWriter | None:
        role = self.process_role_path()
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
                if not after_failure:
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
        location_id: int = 0,
        aux: int = 0,
        inputs: int = 0,
        outputs: bytes = NOTHING,
        flags: int = 0,
        phase: int | None = None,
    ) -> None:
        """Write one event of the current thread."""
        if (writer := self.writer or self.open_writer()) is None:
            return
        state = self.thread
        if state.number < 0:
            state.number, state.role = 0, "main"  # a thread that torch created works for the main thread
        if phase is None:
            phase = state.phase if state.phase >= 0 else f.HOST
        writer.append(
            f.EVENT.pack(
                kind, phase | flags, state.number, writer.intern_string(name), location_id, aux & 0xFFFFFFFF,
                inputs & _MASK64, outputs,
            )
        )  # fmt: skip

    def emit_step(self, leaves: list[tuple[str, bytes]], flags: int) -> None:
        """Write that an optimizer step ended, and its leaves: (name, digest) of each state after it."""
        if (writer := self.writer or self.open_writer()) is not None:
            state, pack, string = self.thread, f.EVENT.pack, writer.intern_string
            if state.number < 0:
                state.number, state.role = 0, "main"
            for name, value in leaves:
                writer.append(pack(f.LEAF, f.BETWEEN | flags, state.number, string(name), 0, 0, 0, value))
        self.step += 1
        outputs = xxh3_128_digest(b"".join(value for _, value in leaves))
        self.emit(f.STEP, inputs=self.step, outputs=outputs, phase=f.BETWEEN)

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
        thin_repeats: bool = False,
        only_at_user_code: bool = False,
        user_line: UserLine | None = None,
    ) -> None:
        """Write one host event at the nearest line of user code.

        `value` is digested into the outputs. `thin_repeats`: record only some of many events at one line.
        `only_at_user_code`: record nothing if no user code is on the stack. `user_line`: the line, if the caller has
        found it already.
        """
        if self.stopped or self.thread.inside_samerun:
            return
        file, line, direct = user_line or stack_frames.find_user_line()
        if only_at_user_code and not line:
            return
        if kind == f.COMPLETION:
            self.note_order_may_vary()
        if thin_repeats and not self.count_and_should_record_first_or_power_of_two((kind, name, file, line)):
            return
        if (writer := self.writer or self.open_writer()) is None:
            return
        self.emit(
            kind,
            name=name,
            location_id=writer.intern_location(file, line, self.thread.module) if line else 0,
            aux=writer.intern_string(aux),
            inputs=inputs,
            outputs=outputs if value is None else xxh3_128_digest(value),
            flags=flags | (f.DIRECT if direct else 0),
        )

    def current_line_is_selected_for_variation(self, variation: Literal["listing", "memory", "clock"]) -> bool:
        """True if a variation acts at the current user line. Asked only where the variation is switched on."""
        only, spared = self.config.varied_line, self.config.unvaried_lines
        if only is None and not spared:
            return True
        if only is not None and only[0] != variation:
            return False
        file, line = self._current_user_line()
        return (only is None or (file, line) == only[1:]) and (variation, file, line) not in spared

    def is_pinned_here(self, pin: str, user_line: UserLine | None = None) -> bool:
        """True if a source is pinned everywhere, or at `user_line` or the current one (`name@file:line`)."""
        names = self.config.pins
        if not names:
            return False
        if pin in names:
            return True
        if not any(each.startswith(pin + "@") for each in names):
            return False
        file, line = self._current_user_line(user_line)
        return f"{pin}@{file}:{line}" in names

    def has_pin_anywhere(self, pin: str) -> bool:
        """True if a source is pinned anywhere in the program."""
        return any(each.split("@", 1)[0] == pin for each in self.config.pins)

    def _current_user_line(self, user_line: UserLine | None = None) -> tuple[str, int]:
        """File and line of a user line, by default the current one, as the trace names them."""
        file, line, _ = user_line or stack_frames.find_user_line()
        return to_original_path(file, self.config.copied_folder), line

    def record_draw_at_user_line(self, generator: str, function: str, digest_state: Callable[[], bytes]) -> None:
        """Record a draw that the program itself makes; `digest_state` digests the generator before the draw."""
        user_line = stack_frames.find_user_line()
        file, line, _ = user_line
        if not line or not self.count_and_should_record_first_or_power_of_two((generator, function, file, line)):
            return
        self.emit_host_event(f.DRAW, generator, aux=function, outputs=digest_state(), user_line=user_line)

    def keep_generator_if_states_are_kept(self, generator: Any) -> None:
        """Remember a generator that the program made, if states are kept."""
        kept = self.own_generators
        if kept is not None and stack_frames.find_user_line().line and not any(each is generator for each in kept):
            kept.append(generator)

    def count_and_should_record_first_or_power_of_two(self, key: tuple[Any, ...]) -> bool:
        """True for the first `FULL_EMISSION` events of a key, then at powers of two.

        The number of events of a key, not time or chance, decides: two equal runs must record the same events.
        """
        seen = self._repeats.get(key, 0) + 1
        self._repeats[key] = seen
        return seen <= FULL_EMISSION or not (seen & (seen - 1))

    def count_skipped_operator(self, operator: str, reason: str) -> None:
        """Count an operator that is left out of the trace: its tensors have no values or cannot be read."""
        self.skipped_operators.setdefault(operator, [0, reason[:200]])[0] += 1

    def emit_step_and_exit_if_due(self, leaves: list[tuple[str, bytes]], flags: int) -> None:
        self.emit_step(leaves, flags)
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
                self.writer.flush()  # a process that gets SIGKILL cannot flush
            os.kill(os.getpid(), config.kill_after[1])

    # --- the end -------------------------------------------------------------------------------------
    def stop(self, reason: str) -> None:
        """Record nothing more. The reason is written to the header of the trace."""
        if not self.stopped:
            self.failure = reason
            writer = self.writer or self.open_writer(after_failure=True)
            self.stopped = True
            if writer is not None:
                writer.close_with_failure_in_header(reason)
            self.writer = None

    def finish(self) -> None:
        """Write the last events and the end mark. Called at exit and before `os._exit`."""
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

    def restart_after_finish(self, config: WatchConfig) -> None:
        """Start another trace, in another folder, of what this process does from now on."""
        self.config, self.failure, self.role = config, "", ""
        self.step, self.thread.last_loss, self.last_batch = 0, NOTHING, NOTHING
        for one in (self._repeats, *self.cleared_on_restart, self.thread.child_counts):
            one.clear()
        # ThreadLocalState and loaders are named by their numbers, which start again with each record.
        self.loader_count, self._threads, self.order_may_vary = 0, itertools.count(1), False
        self.thread.number, self.thread.role, self.thread.operator_count = 0, "main", 0
        self.recording = config.depth != "steps" and not (config.operator_window and config.operator_window[0] > 1)
        if self.recording and self.enter_operators is not None:
            self.enter_operators()
        for call in self.fork_callbacks:  # as after a fork: the new trace numbers its strings anew
            call()
        self.stopped = False

    def pause_operators_until_restart(self) -> None:
        """After `finish`: stop recording the operators of this thread until another record begins."""
        self.recording = False
        if self.leave_operators is not None:
            self.leave_operators()

"""What the modes of all threads of a process share when operators are executed twice (`samerun check --double`)."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from samerun.record.digests.digest import is_readable
from samerun.record.trace import format as f
from samerun.record.watching.double.double_findings import UNSEEN, DoubleFinding, DoubleFindingLog
from samerun.record.watching.double.execution import install_warning_filter, schema_exclusion_reason
from samerun.record.watching.double.memory_registry import MemoryRegistry, SharedMemoryMonitor
from samerun.record.watching.double.shadow_buffers import ShadowBuffers
from samerun.record.watching.recorder import Recorder
from samerun.record.watching.thread_state import ThreadState
from samerun.record.watching.watched_operator import UNORDERED, WatchedOperator

MOST_PAUSES = 200
PAUSES_AT_A_PLACE = 6


class Doubling:
    """The memory, shadow buffers and findings of one process, and which operators are executed twice."""

    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder
        self.executions = recorder.config.executions
        self.memory = MemoryRegistry()
        self.shadows = ShadowBuffers()
        self.shared_memory = SharedMemoryMonitor()
        self.findings = DoubleFindingLog(recorder)
        self.local = threading.local()
        """`region_depth`: greater than 0 while this thread is in a compiled region."""
        self._reasons: dict[Any, str] = {}
        self._not_executed: dict[str, int] = {}
        self._pauses: dict[int, int] = {}
        self._names: dict[int, str] = {}
        self._roles: dict[int, str] = {}
        recorder.fork_callbacks.append(self.reset_in_child)
        recorder.end_callbacks.append(self.report_not_executed)
        install_warning_filter()

    def reset_in_child(self) -> None:
        """In a forked child: places are numbered anew, and the parent's findings are the parent's."""
        self.memory.clear()
        self.shared_memory.clear()
        self.shadows = ShadowBuffers()
        self.findings.clear()
        self._not_executed.clear()
        self._names.clear()
        self.recorder.end_callbacks.append(self.report_not_executed)

    def exclusion_reason(self, func: Any, operator: WatchedOperator) -> str:
        """Returns why an operator is not executed twice, or "" if it is."""
        found = self._reasons.get(func)
        if found is None:
            found = self._reasons[func] = schema_exclusion_reason(func, operator)
        return found

    def in_compiled_region(self) -> bool:
        """True while this thread executes a compiled region."""
        return bool(getattr(self.local, "region_depth", 0))

    @contextmanager
    def enter_compiled_region(self) -> Iterator[None]:
        """For the execution of a compiled region: the region is executed twice as a whole, not its parts."""
        self.local.region_depth = getattr(self.local, "region_depth", 0) + 1
        try:
            yield
        finally:
            self.local.region_depth -= 1

    def is_only_thread(self) -> bool:
        """True if no other living thread has used operators: generators can then be set back for a moment."""
        return all(
            thread.ident not in self._names or thread is threading.current_thread() for thread in threading.enumerate()
        )

    def note_shared_memory(self, tensor: Any, how: str, location_id: int) -> None:
        """From now on something other than torch can write to a tensor's memory."""
        if not is_readable(tensor) or not tensor.numel():
            return
        storage = tensor.untyped_storage()
        record = self.memory.find_or_add_record(storage, location_id)
        record.shared, record.how = location_id, how
        self.shadows.drop(storage)  # what they write, its shadow would never learn
        self.shared_memory.watch(record)

    def execution_count(self, operator: WatchedOperator) -> int:
        """Executions of an operator in all: more where the order of threads may decide how sums are added."""
        return self.executions * (2 if any(part in operator.name for part in UNORDERED) else 1)

    def count_not_executed(self, reason: str) -> None:
        self._not_executed[reason] = self._not_executed.get(reason, 0) + 1

    def report_not_executed(self) -> None:
        """At the end of the process: report what was not executed twice, and why."""
        for reason, times in self._not_executed.items():
            self.findings.report_or_count(DoubleFinding(UNSEEN, how=reason, times=times), reason, 0, f.HOST)
        self._not_executed.clear()

    def count_pause_if_allowed(self, location_id: int) -> bool:
        """True if an operator may still wait here for other threads: limited in all, and for each place."""
        if threading.active_count() < 2 or sum(self._pauses.values()) >= MOST_PAUSES:
            return False
        self._pauses[location_id] = self._pauses.get(location_id, 0) + 1
        return self._pauses[location_id] <= PAUSES_AT_A_PLACE

    def register_thread(self, state: ThreadState) -> None:
        """Note that a thread uses operators, and its role."""
        ident = threading.get_ident()
        if ident not in self._names:
            self._names[ident] = state.role
            self._roles[state.number] = state.role

    def role_of_thread(self, number: int) -> str:
        """The role of the thread with this number; "" if it is not known."""
        return self._roles.get(number, "")

"""What the modes of all threads of a process share when operators are executed twice."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from samerun.record.digests.digest import is_readable
from samerun.record.trace import format as f
from samerun.record.watching.double.double_findings import UNSEEN, DoubleFinding, DoubleFindingLog
from samerun.record.watching.double.execution import silence_warnings, why_not
from samerun.record.watching.double.memory_registry import MemoryRegistry, SharedMemoryMonitor
from samerun.record.watching.double.shadow_buffers import ShadowBuffers
from samerun.record.watching.recorder import Recorder
from samerun.record.watching.thread_state import ThreadState
from samerun.record.watching.watched_operator import UNORDERED, WatchedOperator

MOST_PAUSES = 200
PAUSES_AT_A_PLACE = 6


class Doubling:
    """One for each process."""

    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder
        self.executions = recorder.config.double
        self.looks = MemoryRegistry()
        self.twins = ShadowBuffers()
        self.witness = SharedMemoryMonitor()
        self.findings = DoubleFindingLog(recorder)
        self.local = threading.local()
        """`apart`: greater than 0 while this thread is in a compiled region."""
        self._reasons: dict[Any, str] = {}
        self._unseen: dict[str, int] = {}
        self._pauses: dict[int, int] = {}
        self._names: dict[int, str] = {}
        self._roles: dict[int, str] = {}
        recorder.fork_callbacks.append(self.forget)
        recorder.end_callbacks.append(self.tell_unseen)
        silence_warnings()

    def forget(self) -> None:
        """In a forked child: places are numbered anew, and the parent's findings are the parent's."""
        self.looks.clear()
        self.witness.clear()
        self.twins = ShadowBuffers()
        self.findings.clear()
        self._unseen.clear()
        self._names.clear()
        self.recorder.end_callbacks.append(self.tell_unseen)

    def reason(self, func: Any, operator: WatchedOperator) -> str:
        """Why an operator is not executed twice; "" where it is."""
        found = self._reasons.get(func)
        if found is None:
            found = self._reasons[func] = why_not(func, operator)
        return found

    def apart(self) -> bool:
        """Is this thread inside a compiled region?"""
        return bool(getattr(self.local, "apart", 0))

    @contextmanager
    def kept_apart(self) -> Iterator[None]:
        """In a compiled region: its parts are not executed twice, all of it is."""
        self.local.apart = getattr(self.local, "apart", 0) + 1
        try:
            yield
        finally:
            self.local.apart -= 1

    def alone(self) -> bool:
        """Is no other thread alive that has used operators? Generators can then be taken back for a moment."""
        return all(
            thread.ident not in self._names or thread is threading.current_thread() for thread in threading.enumerate()
        )

    def share(self, tensor: Any, how: str, place: int) -> None:
        """From now on others than torch can write to a tensor's memory."""
        if not is_readable(tensor) or not tensor.numel():
            return
        storage = tensor.untyped_storage()
        known = self.looks.of(storage, place)
        known.shared, known.how = place, how
        self.twins.drop(storage)  # what they write, its twin would never learn
        self.witness.watch(known)

    def times(self, operator: WatchedOperator) -> int:
        """How often an operator is executed in all: more often where sums may follow the order of threads."""
        return self.executions * (2 if any(part in operator.name for part in UNORDERED) else 1)

    def unseen(self, reason: str) -> None:
        self._unseen[reason] = self._unseen.get(reason, 0) + 1

    def tell_unseen(self) -> None:
        """At the end: what was not executed twice."""
        for reason, times in self._unseen.items():
            self.findings.add(DoubleFinding(UNSEEN, how=reason, times=times), reason, 0, f.HOST)
        self._unseen.clear()

    def may_pause(self, place: int) -> bool:
        """May an operator wait here for other threads? Only so often, in all and at one place."""
        if threading.active_count() < 2 or sum(self._pauses.values()) >= MOST_PAUSES:
            return False
        self._pauses[place] = self._pauses.get(place, 0) + 1
        return self._pauses[place] <= PAUSES_AT_A_PLACE

    def enter(self, state: ThreadState) -> None:
        """A thread uses an operator."""
        ident = threading.get_ident()
        if ident not in self._names:
            self._names[ident] = state.role
            self._roles[state.number] = state.role

    def name(self, number: int) -> str:
        """The role of the thread of a number."""
        return self._roles.get(number, "")

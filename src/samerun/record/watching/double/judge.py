"""Two executions gave two results: is it the operator, memory that nobody wrote, or another thread?"""

from __future__ import annotations

import threading
from typing import Any

from samerun.record.digests import digest as d
from samerun.record.watching.double import double_findings as found
from samerun.record.watching.double import execution
from samerun.record.watching.double.double_findings import DoubleFinding
from samerun.record.watching.double.doubled_calls import DoubledCall, digests
from samerun.record.watching.double.doubling import Doubling
from samerun.record.watching.double.shadow_buffers import UnwrittenOrigin, still_fresh, unwritten_used
from samerun.record.watching.thread_state import ThreadState

MORE = 3
"""So many further executions tell an operator that varies from one that another thread came in between of."""


def unwritten(origin: UnwrittenOrigin) -> DoubleFinding:
    return DoubleFinding(found.INSIDE if origin.inside else found.UNWRITTEN, made=origin.made, how=origin.how)


class Judge:
    """Looks at the results of one call."""

    def __init__(
        self, doubling: Doubling, state: ThreadState, call: DoubledCall, firsts: list[Any], values: list[bytes]
    ) -> None:
        self.doubling, self.state, self.call = doubling, state, call
        self.firsts, self.values = firsts, values

    def compare(self) -> None:
        """Execute again and say what differs and why."""
        try:
            self._compare()
        except Exception as error:
            self._failed(error)

    def _compare(self) -> None:
        call = self.call
        second = call.execute(self.state, execution.OTHER)
        seen = digests(second)
        differing = [at for at, (one, other) in enumerate(zip(self.values, seen, strict=True)) if one != other]
        if (differing or call.pausing) and self._raced(second, differing):
            return
        if call.tainted:
            self._unwritten(second, differing)
        elif differing:
            self._varies(second, seen, differing[0])
        else:
            self._repeat()

    def add(self, finding: DoubleFinding, at: int | None = None, other: Any = None) -> None:
        call = self.call
        pair = (self.firsts[at], other) if at is not None and d.is_readable(self.firsts[at]) else ()
        self.doubling.findings.add(finding, call.operator.name, call.place, call.phase, pair)

    # --- another thread ------------------------------------------------------------------------------
    def _raced(self, second: list[Any], differing: list[int]) -> bool:
        """Has an operand changed while this thread was at work?"""
        call, looks = self.call, self.doubling.looks
        written = {id(tensor) for tensor in call.written}
        then = [(tensor, value, write) for tensor, value, write in call.looked if id(tensor) not in written]
        then += [(tensor, self.values[at], call) for at, tensor in enumerate(call.written) if d.is_readable(tensor)]
        for tensor, value, write in then:
            known = looks.of(tensor.untyped_storage())
            now = d.digest(tensor)
            if now == value or known.outside:
                continue
            by_operator = known.write is not write or known.writing > 0 or (known.mixed and not known.how)
            finding = DoubleFinding(
                found.RACE, made=known.made, written=known.written_at if by_operator else known.shared,
                how="operator" if by_operator else known.how,
                thread=self.doubling.name(known.writer) if by_operator else "",
            )  # fmt: skip
            at = differing[0] if differing else None
            self.add(finding, at, second[at] if at is not None else None)
            looks.forget(tensor)
            return True
        return False

    # --- memory that nothing wrote -------------------------------------------------------------------
    def _unwritten(self, second: list[Any], differing: list[int]) -> None:
        call, twins = self.call, self.doubling.twins
        written = {id(tensor) for tensor in call.written}
        inputs = [(tensor, twin) for tensor, twin in call.tainted if id(tensor) not in written]
        if differing and not all(still_fresh(*each) for each in inputs):
            for tensor, _ in inputs:
                twins.drop(tensor.untyped_storage())
            return
        origin = (inputs or call.tainted)[0][1].origin
        count = len(call.written)
        if call.moves:
            for at in differing:
                if at >= count and d.is_readable(self.firsts[at]):
                    twins.moved(self.firsts[at], second[at], origin)
        else:
            real = [at for at in differing if at >= count or self._used(at, second[at], bool(inputs))]
            if real and not self._varies_by_itself(real[0]):
                self.add(unwritten(origin), real[0], second[real[0]])
        for tensor, twin in call.tainted:
            twins.touched(tensor, twin)

    def _used(self, at: int, other: Any, inputs: bool) -> bool:
        """Does what was written into an argument depend on elements that nothing wrote?"""
        tensor = self.firsts[at]
        before = self.call.before.get(id(tensor))
        return inputs if before is None else unwritten_used(before, tensor, other)

    def _varies_by_itself(self, at: int) -> bool:
        """With the same memory: does the result differ as well?"""
        call = self.call
        if call.written or call.draws is not None:
            return False
        third = call.execute(self.state, execution.ZERO, twinned=False)
        if d.digest(third[at]) == self.values[at]:
            return False
        self.add(DoubleFinding(found.KERNEL, runs=2, different=1), at, third[at])
        return True

    # --- the operator itself -------------------------------------------------------------------------
    def _varies(self, second: list[Any], seen: list[bytes], at: int) -> None:
        call = self.call
        if call.draws is not None and not call.draws.undisturbed():
            return
        as_first = digests(call.execute(self.state, execution.ZERO))
        as_second = digests(call.execute(self.state, execution.OTHER))
        if execution.fills_memory and as_first == self.values and as_second == seen:
            self._depends_on_memory(second, [at for at, one in enumerate(self.values) if one != seen[at]])
            return
        others = [seen[at], as_first[at], as_second[at]]
        others += [digests(call.execute(self.state, execution.ZERO))[at] for _ in range(MORE)]
        alone = len(set(others)) == 1 and threading.active_count() > 1 and bool(call.written)
        if alone:  # only the program's own execution, into memory that others can reach, is another one
            self._overwritten(at, second[at])
            return
        different = sum(other != self.values[at] for other in others)
        self.add(DoubleFinding(found.KERNEL, runs=len(others) + 1, different=different), at, second[at])

    def _depends_on_memory(self, second: list[Any], differing: list[int]) -> None:
        """The operator leaves in its results what its own memory held: a fault when somebody computes with it."""
        call = self.call
        for at in differing:
            if at < len(call.written) or not d.is_readable(self.firsts[at]):
                self.add(DoubleFinding(found.INSIDE, runs=4, different=2), at, second[at])
            else:
                name = call.operator.name.split(".")[1]
                self.doubling.twins.moved(self.firsts[at], second[at], UnwrittenOrigin(call.place, name, inside=True))

    def _overwritten(self, at: int, other: Any) -> None:
        known = self.doubling.looks.of(self.call.written[0].untyped_storage())
        self.add(DoubleFinding(found.RACE, made=known.made, written=self.call.place, how="operator"), at, other)

    def _repeat(self) -> None:
        """Further executions of what has been the same so far."""
        call = self.call
        for number in range(3, self.doubling.times(call.operator) + 1):
            again = call.execute(self.state, execution.ZERO)
            for at, tensor in enumerate(again):
                if d.digest(tensor) != self.values[at]:
                    if not self._raced(again, [at]):
                        self.add(DoubleFinding(found.KERNEL, runs=number, different=1), at, tensor)
                    return

    def _failed(self, error: Exception) -> None:
        """The second execution raised something. With other values in fresh memory that says it was read."""
        call = self.call
        if call.tainted and isinstance(error, (IndexError, ValueError)):
            self.add(unwritten(call.tainted[0][1].origin))
        else:
            self.doubling.unseen(f"{call.operator.name}, which failed when executed again")
        for tensor, _ in call.tainted:
            if d.is_readable(tensor):
                self.doubling.twins.drop(tensor.untyped_storage())

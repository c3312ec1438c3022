"""Why two executions gave two results: the operator itself, memory that nobody wrote, or another thread."""

from __future__ import annotations

import threading
from typing import Any

from samerun.record.digests import digest as d
from samerun.record.watching.double import double_findings as found
from samerun.record.watching.double import execution
from samerun.record.watching.double.double_findings import DoubleFinding
from samerun.record.watching.double.doubled_calls import DoubledCall, digest_all
from samerun.record.watching.double.doubling import Doubling
from samerun.record.watching.double.shadow_buffers import (
    UnwrittenOrigin,
    differs_only_where_fresh,
    used_unwritten_elements,
)
from samerun.record.watching.thread_state import ThreadState

MORE_EXECUTIONS = 3
"""Further executions, to tell an operator that varies from one whose memory another thread changed."""


def unwritten_finding(origin: UnwrittenOrigin) -> DoubleFinding:
    return DoubleFinding(found.INSIDE if origin.inside else found.UNWRITTEN, made=origin.made, how=origin.how)


class ResultJudge:
    """Compares the results of one call with those of further executions, and reports why they differ."""

    def __init__(
        self, doubling: Doubling, state: ThreadState, call: DoubledCall, results: list[Any], values: list[bytes]
    ) -> None:
        self.doubling, self.state, self.call = doubling, state, call
        self.results, self.values = results, values

    def compare(self) -> None:
        """Execute again and report what differs and why."""
        try:
            self._compare()
        except Exception as error:
            self._report_failure(error)

    def _compare(self) -> None:
        call = self.call
        second = call.execute(self.state, execution.OTHER)
        seen = digest_all(second)
        differing = [at for at, (one, other) in enumerate(zip(self.values, seen, strict=True)) if one != other]
        if (differing or call.pauses) and self._report_race(second, differing):
            return
        if call.with_shadow:
            self._judge_unwritten(second, differing)
        elif differing:
            self._judge_difference(second, seen, differing[0])
        else:
            self._execute_more()

    def add(self, finding: DoubleFinding, at: int | None = None, other: Any = None) -> None:
        call = self.call
        pair = (self.results[at], other) if at is not None and d.is_readable(self.results[at]) else ()
        self.doubling.findings.add(finding, call.operator.name, call.place, call.phase, pair)

    # --- another thread ------------------------------------------------------------------------------
    def _report_race(self, second: list[Any], differing: list[int]) -> bool:
        """Report a race if an operand changed while this thread executed the operator. Returns True if it did."""
        call, memory = self.call, self.doubling.memory
        written = {id(tensor) for tensor in call.written}
        then = [(tensor, value, write) for tensor, value, write in call.inputs_seen if id(tensor) not in written]
        then += [(tensor, self.values[at], call) for at, tensor in enumerate(call.written) if d.is_readable(tensor)]
        for tensor, value, write in then:
            record = memory.record_of(tensor.untyped_storage())
            now = d.digest(tensor)
            if now == value or record.outside:
                continue
            by_operator = record.write is not write or record.writing > 0 or (record.mixed and not record.how)
            finding = DoubleFinding(
                found.RACE, made=record.made, written=record.written_at if by_operator else record.shared,
                how="operator" if by_operator else record.how,
                thread=self.doubling.role_of_thread(record.writer) if by_operator else "",
            )  # fmt: skip
            at = differing[0] if differing else None
            self.add(finding, at, second[at] if at is not None else None)
            memory.forget(tensor)
            return True
        return False

    # --- memory that nothing wrote -------------------------------------------------------------------
    def _judge_unwritten(self, second: list[Any], differing: list[int]) -> None:
        call, shadows = self.call, self.doubling.shadows
        written = {id(tensor) for tensor in call.written}
        inputs = [(tensor, shadow) for tensor, shadow in call.with_shadow if id(tensor) not in written]
        if differing and not all(differs_only_where_fresh(*each) for each in inputs):
            for tensor, _ in inputs:
                shadows.drop(tensor.untyped_storage())
            return
        origin = (inputs or call.with_shadow)[0][1].origin
        count = len(call.written)
        if call.moves:
            for at in differing:
                if at >= count and d.is_readable(self.results[at]):
                    shadows.add_for_moved(self.results[at], second[at], origin)
        else:
            real = [at for at in differing if at >= count or self._used_unwritten(at, second[at], bool(inputs))]
            if real and not self._varies_with_same_memory(real[0]):
                self.add(unwritten_finding(origin), real[0], second[real[0]])
        for tensor, shadow in call.with_shadow:
            shadows.drop_if_written(tensor, shadow)

    def _used_unwritten(self, at: int, other: Any, inputs: bool) -> bool:
        """True if what was written into an argument depends on elements that nothing wrote."""
        tensor = self.results[at]
        before = self.call.held_before.get(id(tensor))
        return inputs if before is None else used_unwritten_elements(before, tensor, other)

    def _varies_with_same_memory(self, at: int) -> bool:
        """True if the result differs even with the same memory; that is then reported."""
        call = self.call
        if call.written or call.draws is not None:
            return False
        third = call.execute(self.state, execution.ZERO, shadowed=False)
        if d.digest(third[at]) == self.values[at]:
            return False
        self.add(DoubleFinding(found.KERNEL, runs=2, different=1), at, third[at])
        return True

    # --- the operator itself -------------------------------------------------------------------------
    def _judge_difference(self, second: list[Any], seen: list[bytes], at: int) -> None:
        call = self.call
        if call.draws is not None and not call.draws.only_operator_drew():
            return
        as_first = digest_all(call.execute(self.state, execution.ZERO))
        as_second = digest_all(call.execute(self.state, execution.OTHER))
        if execution.fills_memory and as_first == self.values and as_second == seen:
            self._report_own_memory(second, [at for at, one in enumerate(self.values) if one != seen[at]])
            return
        others = [seen[at], as_first[at], as_second[at]]
        others += [digest_all(call.execute(self.state, execution.ZERO))[at] for _ in range(MORE_EXECUTIONS)]
        alone = len(set(others)) == 1 and threading.active_count() > 1 and bool(call.written)
        if alone:  # only the program's own execution, into memory that others can reach, is another one
            self._report_overwritten(at, second[at])
            return
        different = sum(other != self.values[at] for other in others)
        self.add(DoubleFinding(found.KERNEL, runs=len(others) + 1, different=different), at, second[at])

    def _report_own_memory(self, second: list[Any], differing: list[int]) -> None:
        """The results hold what the operator's own memory held: reported when somebody computes with it."""
        call = self.call
        for at in differing:
            if at < len(call.written) or not d.is_readable(self.results[at]):
                self.add(DoubleFinding(found.INSIDE, runs=4, different=2), at, second[at])
            else:
                name = call.operator.name.split(".")[1]
                origin = UnwrittenOrigin(call.place, name, inside=True)
                self.doubling.shadows.add_for_moved(self.results[at], second[at], origin)

    def _report_overwritten(self, at: int, other: Any) -> None:
        record = self.doubling.memory.record_of(self.call.written[0].untyped_storage())
        self.add(DoubleFinding(found.RACE, made=record.made, written=self.call.place, how="operator"), at, other)

    def _execute_more(self) -> None:
        """Execute more often what has been the same so far."""
        call = self.call
        for number in range(3, self.doubling.execution_count(call.operator) + 1):
            again = call.execute(self.state, execution.ZERO)
            for at, tensor in enumerate(again):
                if d.digest(tensor) != self.values[at]:
                    if not self._report_race(again, [at]):
                        self.add(DoubleFinding(found.KERNEL, runs=number, different=1), at, tensor)
                    return

    def _report_failure(self, error: Exception) -> None:
        """The second execution raised. With other values in fresh memory, that means the memory was read."""
        call = self.call
        if call.with_shadow and isinstance(error, (IndexError, ValueError)):
            self.add(unwritten_finding(call.with_shadow[0][1].origin))
        else:
            self.doubling.count_not_executed(f"{call.operator.name}, which failed when executed again")
        for tensor, _ in call.with_shadow:
            if d.is_readable(tensor):
                self.doubling.shadows.drop(tensor.untyped_storage())

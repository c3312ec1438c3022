"""Why two executions gave two results: the operator itself, memory that nobody wrote, or another thread."""

from __future__ import annotations

import threading
from typing import Any

from samerun.record.digests import digest as d
from samerun.record.watching.double_execution import double_findings as found
from samerun.record.watching.double_execution import execution
from samerun.record.watching.double_execution.double_findings import DoubleFinding
from samerun.record.watching.double_execution.doubling import DoubledCall, Doubling, digest_each
from samerun.record.watching.double_execution.memory import (
    UnwrittenOrigin,
    differs_only_where_uninitialized,
    used_uninitialized_elements,
)
from samerun.record.watching.thread_state import ThreadState

MORE_EXECUTIONS = 3
"""Further executions, to tell an operator that varies from one whose memory another thread changed."""


def make_uninitialized_finding(origin: UnwrittenOrigin) -> DoubleFinding:
    return DoubleFinding(found.INSIDE if origin.inside else found.UNWRITTEN, made=origin.made, how=origin.how)


class ResultJudge:
    """Compares the results of one call with those of further executions, and reports why they differ."""

    def __init__(
        self, doubling: Doubling, state: ThreadState, call: DoubledCall, results: list[Any], values: list[bytes]
    ) -> None:
        self.doubling, self.state, self.call = doubling, state, call
        self.results, self.values = results, values

    def execute_again_and_report(self) -> None:
        """Execute again and report what differs and why."""
        try:
            self._execute_second_and_judge()
        except Exception as error:
            self._report_failure(error)

    def _execute_second_and_judge(self) -> None:
        call = self.call
        second_results = call.execute(self.state, execution.OTHER)
        second_values = digest_each(second_results)
        differing_results = [
            result_index
            for result_index, (one, other) in enumerate(zip(self.values, second_values, strict=True))
            if one != other
        ]
        if (differing_results or call.pauses) and self._report_race_if_operand_changed(
            second_results, differing_results
        ):
            return
        if call.with_shadow:
            self._report_or_propagate_uninitialized_memory(second_results, differing_results)
        elif differing_results:
            self._reexecute_and_judge_kernel_difference(second_results, second_values, differing_results[0])
        else:
            self._execute_and_compare_further_times()

    def report(self, finding: DoubleFinding, result_index: int | None = None, other_result: Any = None) -> None:
        call = self.call
        program_and_other_result = (
            (self.results[result_index], other_result)
            if result_index is not None and d.is_readable(self.results[result_index])
            else ()
        )
        self.doubling.findings.count_and_emit_at_powers_of_two(
            finding, call.operator.name, call.location_id, call.phase, program_and_other_result
        )

    # --- another thread ------------------------------------------------------------------------------
    def _report_race_if_operand_changed(self, second_results: list[Any], differing_results: list[int]) -> bool:
        """Report a race if an operand changed while this thread executed the operator. Returns True if it did."""
        call, memory = self.call, self.doubling.memory
        written = {id(tensor) for tensor in call.written}
        then = [(tensor, value, write) for tensor, value, write in call.inputs_seen if id(tensor) not in written]
        then += [
            (tensor, self.values[result_index], call)
            for result_index, tensor in enumerate(call.written)
            if d.is_readable(tensor)
        ]
        for tensor, value, write in then:
            record = memory.find_or_add_record(tensor.untyped_storage())
            now = d.digest(tensor)
            if now == value or record.outside:
                continue
            by_operator = record.write is not write or record.writing > 0 or (record.mixed and not record.how)
            finding = DoubleFinding(
                found.RACE, made=record.made, written=record.written_at if by_operator else record.shared,
                how="operator" if by_operator else record.how,
                thread=self.doubling.role_of_thread(record.writer) if by_operator else "",
            )  # fmt: skip
            result_index = differing_results[0] if differing_results else None
            self.report(finding, result_index, second_results[result_index] if result_index is not None else None)
            memory.drop_known_digests(tensor)
            return True
        return False

    # --- memory that nothing wrote -------------------------------------------------------------------
    def _report_or_propagate_uninitialized_memory(
        self, second_results: list[Any], differing_results: list[int]
    ) -> None:
        call, shadows = self.call, self.doubling.shadows
        written = {id(tensor) for tensor in call.written}
        inputs = [(tensor, shadow) for tensor, shadow in call.with_shadow if id(tensor) not in written]
        if differing_results and not all(differs_only_where_uninitialized(*each) for each in inputs):
            for tensor, _ in inputs:
                shadows.drop(tensor.untyped_storage())
            return
        origin = (inputs or call.with_shadow)[0][1].origin
        count = len(call.written)
        if call.only_moves_elements:
            for result_index in differing_results:
                if result_index >= count and d.is_readable(self.results[result_index]):
                    shadows.add_for_result_with_unwritten_elements(
                        self.results[result_index], second_results[result_index], origin
                    )
        else:
            real = [
                result_index
                for result_index in differing_results
                if result_index >= count
                or self._used_uninitialized_elements(result_index, second_results[result_index], bool(inputs))
            ]
            if real and not self._report_if_varies_with_same_memory(real[0]):
                self.report(make_uninitialized_finding(origin), real[0], second_results[real[0]])
        for tensor, shadow in call.with_shadow:
            shadows.drop_if_contents_equal_shadow(tensor, shadow)

    def _used_uninitialized_elements(self, result_index: int, result_in_shadow: Any, has_shadowed_inputs: bool) -> bool:
        """True if what was written into an argument depends on elements that nothing wrote."""
        tensor = self.results[result_index]
        before = self.call.held_before.get(id(tensor))
        return has_shadowed_inputs if before is None else used_uninitialized_elements(before, tensor, result_in_shadow)

    def _report_if_varies_with_same_memory(self, result_index: int) -> bool:
        """True if the result differs even with the same memory; that is then reported."""
        call = self.call
        if call.written or call.draws is not None:
            return False
        third = call.execute(self.state, execution.ZERO, read_from_shadows=False)
        if d.digest(third[result_index]) == self.values[result_index]:
            return False
        self.report(DoubleFinding(found.KERNEL, runs=2, different=1), result_index, third[result_index])
        return True

    # --- the operator itself -------------------------------------------------------------------------
    def _reexecute_and_judge_kernel_difference(
        self, second_results: list[Any], second_values: list[bytes], result_index: int
    ) -> None:
        call = self.call
        if call.draws is not None and not call.draws.only_operator_drew():
            return
        as_first = digest_each(call.execute(self.state, execution.ZERO))
        as_second = digest_each(call.execute(self.state, execution.OTHER))
        if execution.fills_memory and as_first == self.values and as_second == second_values:
            self._report_or_shadow_scratch_memory_use(
                second_results,
                [result_index for result_index, one in enumerate(self.values) if one != second_values[result_index]],
            )
            return
        others = [second_values[result_index], as_first[result_index], as_second[result_index]]
        others += [digest_each(call.execute(self.state, execution.ZERO))[result_index] for _ in range(MORE_EXECUTIONS)]
        alone = len(set(others)) == 1 and threading.active_count() > 1 and bool(call.written)
        if alone:  # only the program's own execution, into memory that others can reach, is another one
            self._report_overwritten_result(result_index, second_results[result_index])
            return
        different = sum(other != self.values[result_index] for other in others)
        self.report(
            DoubleFinding(found.KERNEL, runs=len(others) + 1, different=different),
            result_index,
            second_results[result_index],
        )

    def _report_or_shadow_scratch_memory_use(self, second_results: list[Any], differing_results: list[int]) -> None:
        """The results hold what the operator's own memory held: reported when somebody computes with it."""
        call = self.call
        for result_index in differing_results:
            if result_index < len(call.written) or not d.is_readable(self.results[result_index]):
                self.report(
                    DoubleFinding(found.INSIDE, runs=4, different=2), result_index, second_results[result_index]
                )
            else:
                name = call.operator.name.split(".")[1]
                origin = UnwrittenOrigin(call.location_id, name, inside=True)
                self.doubling.shadows.add_for_result_with_unwritten_elements(
                    self.results[result_index], second_results[result_index], origin
                )

    def _report_overwritten_result(self, result_index: int, other_result: Any) -> None:
        record = self.doubling.memory.find_or_add_record(self.call.written[0].untyped_storage())
        self.report(
            DoubleFinding(found.RACE, made=record.made, written=self.call.location_id, how="operator"),
            result_index,
            other_result,
        )

    def _execute_and_compare_further_times(self) -> None:
        """Execute more often what has been the same so far."""
        call = self.call
        for number in range(3, self.doubling.execution_count(call.operator) + 1):
            again = call.execute(self.state, execution.ZERO)
            for result_index, tensor in enumerate(again):
                if d.digest(tensor) != self.values[result_index]:
                    if not self._report_race_if_operand_changed(again, [result_index]):
                        self.report(DoubleFinding(found.KERNEL, runs=number, different=1), result_index, tensor)
                    return

    def _report_failure(self, error: Exception) -> None:
        """The second execution raised. With other values in fresh memory, that means the memory was read."""
        call = self.call
        if call.with_shadow and isinstance(error, (IndexError, ValueError)):
            self.report(make_uninitialized_finding(call.with_shadow[0][1].origin))
        else:
            self.doubling.count_not_executed(f"{call.operator.name}, which failed when executed again")
        for tensor, _ in call.with_shadow:
            if d.is_readable(tensor):
                self.doubling.shadows.drop(tensor.untyped_storage())

"""The mode that executes every operator twice. Imports torch: only loaded once the program has."""

from __future__ import annotations

from typing import Any

import torch

from samerun.record.digests import digest as d
from samerun.record.trace import format as f
from samerun.record.watching import thread_state
from samerun.record.watching.double_execution import double_findings as found
from samerun.record.watching.double_execution.double_findings import DoubleFinding
from samerun.record.watching.double_execution.doubling import NO_VALUES, DoubledCall, Doubling, digest_each
from samerun.record.watching.double_execution.execution import view_bytes
from samerun.record.watching.double_execution.judge import ResultJudge, make_uninitialized_finding
from samerun.record.watching.double_execution.memory import view_in_shadow
from samerun.record.watching.operator_mode import OperatorMode, OperatorTable
from samerun.record.watching.torch_internals import wrap_numbers_as_tensor_arguments
from samerun.record.watching.watched_operator import WatchedOperator

PAUSE_SECONDS = 0.002
"""How long to wait for another thread that has written to an operand before, to see whether it does so again."""


class DoubleMode(OperatorMode):  # type: ignore[no-untyped-call]
    """Records each operator, then executes it again and compares. The program gets the first results."""

    def __init__(self, table: OperatorTable, doubling: Doubling) -> None:
        super().__init__(table)
        self.doubling = doubling

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        recorder, state = self.recorder, self.state
        if args and isinstance(args[0], (int, float, complex)):
            args = wrap_numbers_as_tensor_arguments(func, args)
        operator = self.table.operators.get(func) or self.table.add_operator_unless_higher_order(func)
        watching = recorder.recording and not recorder.stopped and not state.inside_samerun
        if not watching or operator is None or self.doubling.in_compiled_region():
            return super().__torch_dispatch__(func, types, args, kwargs)
        before: Any = None
        state.inside_samerun += 1
        try:
            before = self._report_scalar_or_get_size_before_resize(operator, args) if operator.silent else None
            if not operator.silent and not operator.allocates:
                before = self._prepare_call_if_doubled(operator, func, args, kwargs or {})
        except Exception as error:
            recorder.stop(f"samerun could not look into {operator.name}: {error!r}")
        finally:
            state.inside_samerun -= 1
        try:
            out = super().__torch_dispatch__(func, types, args, kwargs)
        except BaseException:
            if isinstance(before, DoubledCall):
                before.drop_digests_of_written(self.doubling.memory)
            raise
        if recorder.stopped or (before is None and not operator.allocates):
            return out
        state.inside_samerun += 1
        try:
            if isinstance(before, DoubledCall):
                self._execute_second_time_and_report(before, out)
            else:
                self._add_shadow_for_uninitialized(operator, out, before or 0)
        except Exception as error:
            recorder.stop(f"samerun could not execute {operator.name} twice: {error!r}")
        finally:
            state.inside_samerun -= 1
        return out

    # --- before --------------------------------------------------------------------------------------
    def _prepare_call_if_doubled(
        self, operator: WatchedOperator, func: Any, args: Any, kwargs: Any
    ) -> DoubledCall | None:
        """Check the operands and copy what will be overwritten; None if the operator is not executed twice."""
        state, doubling = self.state, self.doubling
        doubling.note_role_of_current_thread(state)
        call = DoubledCall(func, operator, args, kwargs)
        flags, call.location_id = self._find_phase_and_location(state, call.tensors)
        call.phase = flags & f.PHASE_MASK
        reason = doubling.exclusion_reason(func) or call.exclusion_reason()
        if not reason:
            try:
                reason = call.prepare_second_execution_or_explain(doubling)
            except (RuntimeError, MemoryError):  # no room for copies
                reason = f"{operator.name}, whose operands could not be copied"
        if not reason:
            self._report_changed_operands(call)
            call.shared_snapshot = doubling.shared_memory.take_snapshot()
        for tensor in call.written:
            if d.is_readable(tensor):
                doubling.memory.note_write_begin(tensor, call, state.number, call.location_id)
        if reason:
            if reason != NO_VALUES:
                doubling.count_not_executed(reason)
            call.drop_digests_of_written(doubling.memory)
            for tensor in filter(d.is_readable, call.written):
                doubling.shadows.drop(tensor.untyped_storage())
                doubling.memory.drop_known_digests(tensor, changes_at_any_time=operator.asynchronous)
            return None
        return call

    def _report_changed_operands(self, call: DoubledCall) -> None:
        """Report every operand that is not what it was when an operator last used it."""
        doubling = self.doubling
        skipped = {id(tensor) for tensor in call.written} if call.operator.overwrites else ()
        foreign = False
        for tensor in call.tensors:
            if id(tensor) in skipped:
                continue
            value, said = doubling.memory.digest_and_detect_foreign_write(tensor, self.state.number)
            if value is None:
                continue
            record = doubling.memory.find_or_add_record(tensor.untyped_storage())
            call.inputs_seen.append((tensor, value, record.write))
            foreign = foreign or bool(said) or record.writer not in (-1, self.state.number)
            if said:
                unsure = said == found.RACE
                finding = DoubleFinding(said, made=record.made, written=record.shared, how=record.how, unsure=unsure)
                doubling.findings.count_and_emit_at_powers_of_two(
                    finding, call.operator.name, call.location_id, call.phase
                )
        call.pauses = foreign and doubling.count_pause_if_allowed(call.location_id)

    def _report_scalar_or_get_size_before_resize(self, operator: WatchedOperator, args: Any) -> int | None:
        """Handle an operator that computes nothing. Returns the bytes of memory that it may be about to grow."""
        name = operator.name.split(".")[1] if "." in operator.name else ""
        if name == "resize_" and type(args[0]) is torch.Tensor and d.is_readable(args[0]):
            return int(args[0].untyped_storage().nbytes())
        if name == "_local_scalar_dense":
            self._report_scalar_if_uninitialized(operator, args[0])
        return None

    def _report_scalar_if_uninitialized(self, operator: WatchedOperator, tensor: Any) -> None:
        """A tensor's element becomes a Python number: report it if it depends on unwritten memory."""
        doubling = self.doubling
        shadow = doubling.shadows.find_shadow_or_drop_outdated(tensor)
        if shadow is None:
            return
        other = view_in_shadow(tensor, shadow)
        if d.digest(tensor) != d.digest(other):
            flags, location_id = self._find_phase_and_location(self.state, [tensor])
            finding = make_uninitialized_finding(shadow.origin)
            doubling.findings.count_and_emit_at_powers_of_two(
                finding, operator.name, location_id, flags & f.PHASE_MASK, (tensor, other)
            )

    # --- after ---------------------------------------------------------------------------------------
    def _add_shadow_for_uninitialized(self, operator: WatchedOperator, out: Any, initialized_bytes: int) -> None:
        """Fresh memory, of which the first `initialized_bytes` bytes are known."""
        if not d.is_readable(out):
            return
        storage = out.untyped_storage()
        if storage.nbytes() > initialized_bytes:
            if initialized_bytes:  # `empty` is filled with zeros already
                view_bytes(storage, initialized_bytes, storage.nbytes() - initialized_bytes).zero_()
            location_id = self._intern_user_line(self.state.module)
            self.doubling.memory.find_or_add_record(storage, location_id)
            self.doubling.shadows.add_for_uninitialized(
                out, location_id, operator.name.split(".")[1], initialized_bytes
            )

    def _execute_second_time_and_report(self, call: DoubledCall, out: Any) -> None:
        doubling, state = self.doubling, self.state
        results = call.collect_results(out)
        values = digest_each(results)
        count = len(call.written)
        for at, (tensor, value) in enumerate(zip(results, values, strict=True)):
            if not d.is_readable(tensor):
                continue
            if at < count:
                doubling.memory.note_write_end(tensor, call, value)
            else:
                doubling.memory.note_result(tensor, value, state.number, call.location_id)
        if call.pauses:
            thread_state.unwatched_sleep(PAUSE_SECONDS)
        ResultJudge(doubling, state, call, results, values).execute_again_and_report()
        doubling.shared_memory.mark_foreign_writes_since(call.shared_snapshot)

"""The mode that executes every operator twice. Imports torch: only loaded once the program has."""

from __future__ import annotations

from typing import Any

import torch

from samerun.record.digests import digest as d
from samerun.record.trace import format as f
from samerun.record.watching.double import double_findings as found
from samerun.record.watching.double import wait_counter
from samerun.record.watching.double.argument_copies import raw_bytes
from samerun.record.watching.double.double_findings import DoubleFinding
from samerun.record.watching.double.doubled_calls import NO_VALUES, DoubledCall, digest_all
from samerun.record.watching.double.doubling import Doubling
from samerun.record.watching.double.judge import ResultJudge, unwritten_finding
from samerun.record.watching.double.shadow_buffers import shadow_view
from samerun.record.watching.operator_mode import OperatorMode, OperatorTable
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
        operator = self.table.operators.get(func) or self.table.add_operator(func)
        watching = recorder.recording and not recorder.stopped and not state.inside_samerun
        if not watching or operator is None or self.doubling.in_compiled_region():
            return super().__torch_dispatch__(func, types, args, kwargs)
        before: Any = None
        state.inside_samerun += 1
        try:
            before = self._prepare_silent(operator, args) if operator.silent else None
            if not operator.silent and not operator.allocates:
                before = self._prepare_call(operator, func, args, kwargs or {})
        except Exception as error:
            recorder.stop(f"samerun could not look into {operator.name}: {error!r}")
        finally:
            state.inside_samerun -= 1
        try:
            out = super().__torch_dispatch__(func, types, args, kwargs)
        except BaseException:
            if isinstance(before, DoubledCall):
                before.end_writes(self.doubling.memory)
            raise
        if recorder.stopped or (before is None and not operator.allocates):
            return out
        state.inside_samerun += 1
        try:
            if isinstance(before, DoubledCall):
                self._compare(before, out)
            else:
                self._note_fresh_memory(operator, out, before or 0)
        except Exception as error:
            recorder.stop(f"samerun could not execute {operator.name} twice: {error!r}")
        finally:
            state.inside_samerun -= 1
        return out

    # --- before --------------------------------------------------------------------------------------
    def _prepare_call(self, operator: WatchedOperator, func: Any, args: Any, kwargs: Any) -> DoubledCall | None:
        """Check the operands and copy what will be overwritten; None if the operator is not executed twice."""
        state, doubling = self.state, self.doubling
        doubling.register_thread(state)
        call = DoubledCall(func, operator, args, kwargs)
        flags, call.place = self._phase_and_place(state, call.tensors)
        call.phase = flags & f.PHASE_MASK
        reason = doubling.exclusion_reason(func, operator) or call.exclusion_reason()
        if not reason:
            try:
                reason = call.prepare(doubling)
            except (RuntimeError, MemoryError):  # no room for copies
                reason = f"{operator.name}, whose operands could not be copied"
        if not reason:
            self._check_operands(call)
            call.shared_snapshot = doubling.shared_memory.take_snapshot()
        for tensor in call.written:
            if d.is_readable(tensor):
                doubling.memory.begin_write(tensor, call, state.number, call.place)
        if reason:
            if reason != NO_VALUES:
                doubling.count_not_executed(reason)
            call.end_writes(doubling.memory)
            for tensor in filter(d.is_readable, call.written):
                doubling.shadows.drop(tensor.untyped_storage())
                doubling.memory.forget(tensor, outside=operator.asynchronous)
            return None
        return call

    def _check_operands(self, call: DoubledCall) -> None:
        """Report every operand that is not what it was when an operator last used it."""
        doubling = self.doubling
        skipped = {id(tensor) for tensor in call.written} if call.operator.overwrites else ()
        foreign = False
        for tensor in call.tensors:
            if id(tensor) in skipped:
                continue
            value, said = doubling.memory.check_tensor(tensor, self.state.number)
            if value is None:
                continue
            record = doubling.memory.record_of(tensor.untyped_storage())
            call.inputs_seen.append((tensor, value, record.write))
            foreign = foreign or bool(said) or record.writer not in (-1, self.state.number)
            if said:
                unsure = said == found.RACE
                finding = DoubleFinding(said, made=record.made, written=record.shared, how=record.how, unsure=unsure)
                doubling.findings.add(finding, call.operator.name, call.place, call.phase)
        call.pauses = foreign and doubling.may_pause(call.place)

    def _prepare_silent(self, operator: WatchedOperator, args: Any) -> int | None:
        """Handle an operator that computes nothing. Returns the bytes of memory that it may be about to grow."""
        name = operator.name.split(".")[1] if "." in operator.name else ""
        if name == "resize_" and type(args[0]) is torch.Tensor and d.is_readable(args[0]):
            return int(args[0].untyped_storage().nbytes())
        if name == "_local_scalar_dense":
            self._check_read_number(operator, args[0])
        return None

    def _check_read_number(self, operator: WatchedOperator, tensor: Any) -> None:
        """A tensor's element becomes a Python number: report it if it depends on unwritten memory."""
        doubling = self.doubling
        shadow = doubling.shadows.shadow_of(tensor)
        if shadow is None:
            return
        other = shadow_view(tensor, shadow)
        if d.digest(tensor) != d.digest(other):
            flags, place = self._phase_and_place(self.state, [tensor])
            finding = unwritten_finding(shadow.origin)
            doubling.findings.add(finding, operator.name, place, flags & f.PHASE_MASK, (tensor, other))

    # --- after ---------------------------------------------------------------------------------------
    def _note_fresh_memory(self, operator: WatchedOperator, out: Any, kept: int) -> None:
        """Fresh memory, of which the first `kept` bytes are known."""
        if not d.is_readable(out):
            return
        storage = out.untyped_storage()
        if storage.nbytes() > kept:
            if kept:  # `empty` is filled with zeros already
                raw_bytes(storage, kept, storage.nbytes() - kept).zero_()
            place = self._user_line_place(self.state.module)
            self.doubling.memory.record_of(storage, place)
            self.doubling.shadows.add_for_fresh(out, place, operator.name.split(".")[1], kept)

    def _compare(self, call: DoubledCall, out: Any) -> None:
        doubling, state = self.doubling, self.state
        results = call.results(out)
        values = digest_all(results)
        count = len(call.written)
        for at, (tensor, value) in enumerate(zip(results, values, strict=True)):
            if not d.is_readable(tensor):
                continue
            if at < count:
                doubling.memory.end_write(tensor, call, value)
            else:
                doubling.memory.note_result(tensor, value, state.number, call.place)
        if call.pauses:
            wait_counter.sleep(PAUSE_SECONDS)
        ResultJudge(doubling, state, call, results, values).compare()
        doubling.shared_memory.note_foreign_writes(call.shared_snapshot)

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
from samerun.record.watching.double.doubled_calls import NO_VALUES, DoubledCall, digests
from samerun.record.watching.double.doubling import Doubling
from samerun.record.watching.double.judge import Judge, unwritten
from samerun.record.watching.double.shadow_buffers import view_of
from samerun.record.watching.operator_mode import OperatorMode, OperatorTable
from samerun.record.watching.watched_operator import WatchedOperator

PAUSE_SECONDS = 0.002
"""How long is waited for another thread that has written to an operand before: does it again?"""


class DoubleMode(OperatorMode):  # type: ignore[no-untyped-call]
    """Records what passes, then executes it again and compares. The program gets the first results."""

    def __init__(self, table: OperatorTable, doubling: Doubling) -> None:
        super().__init__(table)
        self.doubling = doubling

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        recorder, state = self.recorder, self.state
        operator = self.table.operators.get(func) or self.table.operator(func)
        watching = recorder.recording and not recorder.stopped and not state.inside_samerun
        if not watching or operator is None or self.doubling.apart():
            return super().__torch_dispatch__(func, types, args, kwargs)
        before: Any = None
        state.inside_samerun += 1
        try:
            before = self._special(operator, args) if operator.silent else None
            if not operator.silent and not operator.allocates:
                before = self._begin(operator, func, args, kwargs or {})
        except Exception as error:
            recorder.stop(f"samerun could not look into {operator.name}: {error!r}")
        finally:
            state.inside_samerun -= 1
        try:
            out = super().__torch_dispatch__(func, types, args, kwargs)
        except BaseException:
            if isinstance(before, DoubledCall):
                before.end_writes(self.doubling.looks)
            raise
        if recorder.stopped or (before is None and not operator.allocates):
            return out
        state.inside_samerun += 1
        try:
            if isinstance(before, DoubledCall):
                self._compare(before, out)
            else:
                self._made(operator, out, before or 0)
        except Exception as error:
            recorder.stop(f"samerun could not execute {operator.name} twice: {error!r}")
        finally:
            state.inside_samerun -= 1
        return out

    # --- before --------------------------------------------------------------------------------------
    def _begin(self, operator: WatchedOperator, func: Any, args: Any, kwargs: Any) -> DoubledCall | None:
        """Look at the operands and copy what will be written over; None where it is not executed twice."""
        state, doubling = self.state, self.doubling
        doubling.enter(state)
        call = DoubledCall(func, operator, args, kwargs)
        flags, call.place = self._phase_and_place(state, call.tensors)
        call.phase = flags & f.PHASE_MASK
        reason = doubling.reason(func, operator) or call.why_not()
        if not reason:
            try:
                reason = call.prepare(doubling)
            except (RuntimeError, MemoryError):  # no room for copies
                reason = f"{operator.name}, whose operands could not be copied"
        if not reason:
            self._look(call)
            call.shared = doubling.witness.begin()
        for tensor in call.written:
            if d.is_readable(tensor):
                doubling.looks.begin_write(tensor, call, state.number, call.place)
        if reason:
            if reason != NO_VALUES:
                doubling.unseen(reason)
            call.end_writes(doubling.looks)
            for tensor in filter(d.is_readable, call.written):
                doubling.twins.drop(tensor.untyped_storage())
                doubling.looks.forget(tensor, outside=operator.asynchronous)
            return None
        return call

    def _look(self, call: DoubledCall) -> None:
        """Is every operand what it was when an operator last saw it?"""
        doubling = self.doubling
        skipped = {id(tensor) for tensor in call.written} if call.operator.overwrites else ()
        foreign = False
        for tensor in call.tensors:
            if id(tensor) in skipped:
                continue
            value, said = doubling.looks.look(tensor, self.state.number)
            if value is None:
                continue
            known = doubling.looks.of(tensor.untyped_storage())
            call.looked.append((tensor, value, known.write))
            foreign = foreign or bool(said) or known.writer not in (-1, self.state.number)
            if said:
                unsure = said == found.RACE
                finding = DoubleFinding(said, made=known.made, written=known.shared, how=known.how, unsure=unsure)
                doubling.findings.add(finding, call.operator.name, call.place, call.phase)
        call.pausing = foreign and doubling.may_pause(call.place)

    def _special(self, operator: WatchedOperator, args: Any) -> int | None:
        """Operators that compute nothing. Returns the size in bytes of memory that may be about to grow."""
        name = operator.name.split(".")[1] if "." in operator.name else ""
        if name == "resize_" and type(args[0]) is torch.Tensor and d.is_readable(args[0]):
            return int(args[0].untyped_storage().nbytes())
        if name == "_local_scalar_dense":
            self._read_out(operator, args[0])
        return None

    def _read_out(self, operator: WatchedOperator, tensor: Any) -> None:
        """A value becomes a number of the program's."""
        doubling = self.doubling
        twin = doubling.twins.of(tensor)
        if twin is None:
            return
        other = view_of(tensor, twin)
        if d.digest(tensor) != d.digest(other):
            flags, place = self._phase_and_place(self.state, [tensor])
            doubling.findings.add(unwritten(twin.origin), operator.name, place, flags & f.PHASE_MASK, (tensor, other))

    # --- after ---------------------------------------------------------------------------------------
    def _made(self, operator: WatchedOperator, out: Any, kept: int) -> None:
        """Fresh memory, of which the first `kept` bytes are known."""
        if not d.is_readable(out):
            return
        storage = out.untyped_storage()
        if storage.nbytes() > kept:
            if kept:  # `empty` is filled with zeros already
                raw_bytes(storage, kept, storage.nbytes() - kept).zero_()
            place = self._place(self.state.module)
            self.doubling.looks.of(storage, place)
            self.doubling.twins.fresh(out, place, operator.name.split(".")[1], kept)

    def _compare(self, call: DoubledCall, out: Any) -> None:
        doubling, state = self.doubling, self.state
        firsts = call.results(out)
        values = digests(firsts)
        count = len(call.written)
        for at, (tensor, value) in enumerate(zip(firsts, values, strict=True)):
            if not d.is_readable(tensor):
                continue
            if at < count:
                doubling.looks.end_write(tensor, call, value)
            else:
                doubling.looks.result(tensor, value, state.number, call.place)
        if call.pausing:
            wait_counter.sleep(PAUSE_SECONDS)
        Judge(doubling, state, call, firsts, values).compare()
        doubling.witness.end(call.shared)

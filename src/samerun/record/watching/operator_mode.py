"""The mode that sees every operator. Imports torch: only loaded once the program has."""

from __future__ import annotations

import sys
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from xxhash import xxh3_64_intdigest, xxh3_128_digest

from samerun.record import pins
from samerun.record.digests import digest as d
from samerun.record.digests import torch_guards
from samerun.record.digests.storages import COLLECTIVE, UNDEFINED, StorageDigests, WrittenByCollective
from samerun.record.digests.torch_guards import as_plain_tensor, is_plain_cpu_tensor, no_torch_function
from samerun.record.trace import format as f
from samerun.record.watching import collectives, kept_tensors, stack_frames, torch_internals
from samerun.record.watching.interceptors import fresh_memory
from samerun.record.watching.recorder import NOTHING, Recorder
from samerun.record.watching.thread_state import ThreadState
from samerun.record.watching.torch_internals import (
    KeepsProgramsCompiledMixin,
    ThreadGeneratorStates,
    location_of_running_autograd_node,
    record_new_autograd_node_locations,
)
from samerun.record.watching.watched_operator import NoValues, WatchedOperator, flatten_to_tensors_and_stable_values

EventInputs = tuple[int, int, int, int]
"""What an event says of its inputs: phase and flags, place, digest of the tensors, digest of the scalars."""

_Tensor = torch.Tensor
_requires_grad: Any = vars(torch._C.TensorBase)["requires_grad"].__get__
_scalars = frozenset((int, float, bool, type(None)))
_plain_call = torch._ops.OpOverload.__call__
_random_tag = torch.Tag.nondeterministic_seeded
_graph_task = torch._C._current_graph_task_id
_next_sequence = torch._C._autograd._get_sequence_nr
_grad_enabled = torch.is_grad_enabled
_pack = f.EVENT.pack
_kinds = stack_frames._code_kinds


class OperatorTable:
    """What the operator modes of all threads of a process share."""

    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder
        self.operators: dict[Any, WatchedOperator] = {}
        self.by_id: dict[int, WatchedOperator] = {}
        """The same by `id`: hashing torch's operators would call a Python function for each."""
        self.storages = StorageDigests()
        self.location_ids: dict[tuple[int, int, str], int] = {}
        self.thread_streams = ThreadGeneratorStates() if pins.THREAD_STREAMS in recorder.config.pins else None
        recorder.fork_callbacks.append(self.reset_trace_ids)

    def reset_trace_ids(self) -> None:
        """Another trace has other numbers for strings and places."""
        self.location_ids.clear()
        for operator in self.operators.values():
            operator.name_id = -1

    def add_operator_unless_higher_order(self, func: Any) -> WatchedOperator | None:
        """Add an operator met for the first time; None if it is of higher order: those it calls are seen themselves."""
        if getattr(func, "_schema", None) is None:
            return None
        found = self.operators[func] = self.by_id[id(func)] = WatchedOperator(func, _random_tag, _plain_call)
        return found


class OperatorMode(KeepsProgramsCompiledMixin, TorchDispatchMode):
    """Records every operator and changes none. One for each thread.

    `native/watch` does the same for the usual operator (decision 0027): a change here is to be made there too.
    Whatever it reads of a tensor, it reads inside `no_torch_function`: a program's own `__torch_function__` mode or
    subclass would otherwise see each attribute that is read, and might answer with a value of its own.
    """

    supports_higher_order_operators = True

    def __init__(self, table: OperatorTable) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.table = table
        self.recorder = table.recorder
        self.memory = table.recorder.config.fresh_memory
        self.rewinds_draws_of_some_lines = table.recorder.config.rewinds_draws_of_some_lines
        self.capture = table.recorder.config.capture
        self.replayer = table.recorder.replayer
        self.state = table.recorder.thread
        self.holds_stream_lock = False
        """True while this thread holds the lock of `ThreadGeneratorStates`."""
        self.unwritten_origin = 0
        """Where the memory was allocated that the current operator reads before all of it was written."""
        self.written_record: Any = None
        """The record of the memory that the current operator writes into, if it is only one."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        recorder, state = self.recorder, self.state
        if args and isinstance(args[0], (int, float, complex)):
            args = torch_internals.wrap_numbers_as_tensor_arguments(func, args)
        if state.inside_samerun or recorder.stopped:
            return func(*args, **kwargs) if kwargs else func(*args)
        if any(map(torch_guards.has_own_torch_dispatch_and_values, types)):
            return NotImplemented  # it calls operators on the tensors it is made of: those are seen
        operator = self.table.by_id.get(id(func)) or self.table.add_operator_unless_higher_order(func)
        if operator is None or not (recorder.recording or operator.allocates):
            return func(*args, **kwargs) if kwargs else func(*args)
        call = operator.call  # `func`, but without a line of torch's own in tracebacks
        if operator.silent:
            if state.last_sequence != _next_sequence() and _graph_task() == -1:
                record_new_autograd_node_locations(state, self._intern_user_line(state.module))
            return call(*args, **kwargs) if kwargs else call(*args)
        if operator.allocates:
            out = call(*args, **kwargs) if kwargs else call(*args)
            try:
                with no_torch_function():
                    self._fill_and_mark_uninitialized(out, state)
            except Exception as error:
                self._count_skipped_operator(operator, error)
            return out
        if operator.random and self.table.thread_streams is not None and not self.holds_stream_lock:
            self.holds_stream_lock = True
            try:
                with self.table.thread_streams.swap_in_state_of(state):
                    return self.__torch_dispatch__(func, types, args, kwargs)
            finally:
                self.holds_stream_lock = False
        if operator.random and self.rewinds_draws_of_some_lines and recorder.is_pinned_here(pins.EXTRA):
            return self._draw_and_rewind_generator(call, args, kwargs)
        try:
            with no_torch_function():
                before = self._digest_operands(operator, args, kwargs, state)
        except Exception as error:
            self._count_skipped_operator(operator, error)
            return call(*args, **kwargs) if kwargs else call(*args)
        out = call(*args, **kwargs) if kwargs else call(*args)
        try:
            with no_torch_function():
                if operator.random:
                    self._record_draw(operator, before[1], state, before[0] & f.PHASE_MASK)
                if self.replayer is not None and operator.writes_nothing:
                    out = self.replayer.save_or_replay_output_of_source(operator.name, before[1], out)
                self._record_results(operator, args, kwargs, out, state, before)
        except Exception as error:
            self._count_skipped_operator(operator, error)
        return out

    def _count_skipped_operator(self, operator: WatchedOperator, error: Exception) -> None:
        """Leave out an operator on tensors that have no values or cannot be read; the program continues."""
        if not (isinstance(error, NoValues) and torch_internals.is_on_fake_tensors()):  # to learn shapes: none left out
            reason = f.NO_VALUES if isinstance(error, NoValues) else repr(error)
            self.recorder.count_skipped_operator(operator.name, reason)

    def _draw_and_rewind_generator(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Draw, then put the generator back to where it was."""
        tensors: list[Any] = []
        flatten_to_tensors_and_stable_values(args, _Tensor, tensors, [])
        generator = torch_internals.find_operator_generator(kwargs, tensors)
        state = generator.get_state()
        try:
            return func(*args, **kwargs) if kwargs else func(*args)
        finally:
            generator.set_state(state)

    # --- where ---------------------------------------------------------------------------------------
    def _intern_user_line(self, module: str) -> int:
        """Number of the user's current line in the trace; 0 if no user code is on the stack."""
        frame: Any = sys._getframe(2)
        while frame is not None:
            code = frame.f_code
            kind = _kinds.get(id(code))
            if kind is None:
                kind = stack_frames.classify_code(code)
            if kind == stack_frames.USER:
                key = (id(code), frame.f_lineno, module)
                location_id = self.table.location_ids.get(key)
                if location_id is None:
                    writer = self.recorder.writer or self.recorder.open_writer()
                    location_id = writer.intern_location(code.co_filename, frame.f_lineno, module) if writer else 0
                    self.table.location_ids[key] = location_id
                return location_id
            frame = frame.f_back
        return 0

    def _find_phase_and_location(self, state: ThreadState, tensors: list[Any]) -> tuple[int, int]:
        if _graph_task() != -1:
            return f.BACKWARD, location_of_running_autograd_node(state) or self._intern_user_line(state.module)
        if state.phase == f.OPTIMIZER and state.step_location_id and not _grad_enabled():
            return f.OPTIMIZER, state.step_location_id
        location_id = self._intern_user_line(state.module)
        if state.last_sequence != _next_sequence():
            record_new_autograd_node_locations(state, location_id)
        if state.phase >= 0:
            return state.phase, location_id
        if state.outer_modules or (_grad_enabled() and any(_requires_grad(tensor) for tensor in tensors)):
            return f.FORWARD, location_id
        return f.BETWEEN, location_id

    # --- what ----------------------------------------------------------------------------------------
    def _fill_and_mark_uninitialized(self, out: Any, state: ThreadState) -> None:
        """Memory that nothing was written to: fill it if that is asked for, and note where it was allocated."""
        filled = fresh_memory.torch_fills_uninitialized_memory()
        if not d.is_readable(out):
            return
        if self.memory is not None and not filled:
            with torch_guards.HiddenFromProgram():
                fresh_memory.fill_uninitialized_if_possible(
                    out, self.memory if self.recorder.current_line_is_selected_for_variation("memory") else "zeros"
                )
        if self.recorder.recording:
            record = self.table.storages.find_or_add_record(out, True)
            record.uninitialised = out.numel() > 0 and not filled
            record.trusted, record.content_digest = True, NOTHING
            record.view_digests.clear()
            record.made_at = self._intern_user_line(state.module) * (1 if stack_frames.is_called_by_user() else -1)

    def _digest_operands(self, operator: WatchedOperator, args: Any, kwargs: Any, state: ThreadState) -> EventInputs:
        """Digest the operands before the operator runs: it may write over them.

        Not split into functions: a step calls this hundreds of times, each time with cold caches.
        """
        storages = self.table.storages
        tensors: list[Any] = []
        others: list[Any] = []
        # as `flatten_to_tensors_and_stable_values` does, without a call for the common kinds
        for item in args[:1] if operator.takes_message else args:
            if isinstance(item, _Tensor):
                tensors.append(item)
            elif type(item) in _scalars:
                others.append(item)
            else:
                flatten_to_tensors_and_stable_values((item,), _Tensor, tensors, others)
        if kwargs:
            flatten_to_tensors_and_stable_values(kwargs.values(), _Tensor, tensors, others)
        flags, location_id = self._find_phase_and_location(state, tensors)
        if operator.random and not all(map(torch_guards.has_real_values, tensors)):
            raise NoValues  # such a draw takes nothing from any generator
        if operator.overwrites:
            skip = {id(t) for t in operator.flatten_written_arguments(args, kwargs)}
            tensors = [tensor for tensor in tensors if id(tensor) not in skip]
        parts = []
        thread, records = state.number, storages.records
        self.written_record = None
        written = args[0] if operator.in_place else None
        for tensor in tensors:
            if not is_plain_cpu_tensor(tensor):
                if not d.is_readable(tensor):
                    if not torch_guards.has_real_values(tensor):
                        raise NoValues
                    flags |= f.INEXACT
                    parts.append(d.digest(tensor))
                    continue
                tensor, original = as_plain_tensor(tensor), tensor
                written = tensor if original is written else written
                flags |= 0 if tensor.is_cpu else f.ON_DEVICE
            record = records.get(tensor.untyped_storage()._cdata)
            if record is None:
                record = storages.find_or_add_record(tensor)
            if tensor is written:
                self.written_record = record
            if record.last_writer != thread and record.last_writer >= 0:
                flags |= f.FOREIGN_WRITE
            if record.uninitialised:  # its garbage is not compared; what is computed from it is
                self._record_uninitialized_read(operator, record, tensor)
                flags |= f.INEXACT if record.last_writer == COLLECTIVE else f.UNINITIALISED
                parts.append(UNDEFINED)
                continue
            if record.trusted and tensor.is_contiguous() and not (tensor.is_neg() or tensor.is_conj()):
                known = record.view_digests.get((tensor.storage_offset(), tensor.shape, tensor.dtype))
                parts.append(storages.digest_input(tensor, record) if known is None else known)
            else:
                parts.append(storages.digest_input(tensor, record))
        if not parts:
            flags |= f.NO_INPUTS
        if operator.random:
            if not tensors and torch_internals.creates_meta_or_fake_tensor(kwargs):
                raise NoValues
            generator = torch_internals.find_operator_generator(kwargs, tensors)
            state.generator_before = (
                generator,
                generator.initial_seed() & 0xFFFFFFFFFFFFFFFF,
                d.digest(generator.get_state()),
            )
        scalars = xxh3_64_intdigest(repr(others).encode()) & 0xFFFFFFFF if others else 0
        inputs = parts[0] if len(parts) == 1 else b"".join(parts)
        return flags, location_id, xxh3_64_intdigest(inputs), scalars

    def _record_uninitialized_read(self, operator: WatchedOperator, record: Any, tensor: Any) -> None:
        if record.last_writer == COLLECTIVE:
            return collectives.record_if_read_before_wait(self.recorder, self.table.storages, tensor, operator.name)
        self.unwritten_origin = record.made_at
        fresh_memory.record_uninitialized_read(self.recorder, operator.name, record.made_at)

    def _record_draw(self, operator: WatchedOperator, location_id: int, state: ThreadState, phase: int) -> None:
        """Record seed and earlier state of the generator that an operator has drawn from. Attention only may do so."""
        writer = self.recorder.writer or self.recorder.open_writer()
        assert state.generator_before is not None
        generator, seed, value = state.generator_before
        if writer is None or d.digest(generator.get_state()) == value:
            return
        if generator is torch.default_generator:
            name = "torch"
        else:
            name = "torch.Generator" if generator.device.type == "cpu" else f"torch.{generator.device}"
        name_id, function = writer.intern_string(name), writer.intern_string(operator.name)
        writer.append(_pack(f.DRAW, phase, state.number, name_id, location_id, function, seed, value))

    def _record_results(
        self, operator: WatchedOperator, args: Any, kwargs: Any, out: Any, state: ThreadState, event_inputs: EventInputs
    ) -> None:
        """Digest the results, written arguments first, and write the event."""
        writer = self.recorder.writer or self.recorder.open_writer()
        if writer is None:
            return
        storages, thread = self.table.storages, state.number
        flags, location_id, inputs, scalars = event_inputs
        rows = self.recorder.sample_rows
        if rows is not None and rows.rows >= 0 and thread == 0:
            outs: list[Any] = []
            flatten_to_tensors_and_stable_values((out,), _Tensor, outs, [])
            rows.add_operator_results_if_inference(location_id, operator.name, outs)
        moved = bool(flags & f.UNINITIALISED) and (operator.only_moves or torch_internals.is_fx_proxy_tracing())
        if operator.writes_nothing and type(out) is _Tensor and is_plain_cpu_tensor(out) and not moved:
            self._append_operator_event(
                writer, operator, state, event_inputs, storages.digest_output(out, thread), (out,)
            )
            return
        if out is not None and operator.in_place and out is args[0] and self.written_record is not None:
            digest = storages.digest_written(as_plain_tensor(out), self.written_record, thread)
            self._append_operator_event(writer, operator, state, event_inputs, digest, (out,))
            return
        results: list[bytes] = []
        kept: list[Any] = []
        sent: list[WrittenByCollective] = []
        returns_early = operator.asynchronous and operator.may_return_early(args, kwargs)
        for tensor in operator.flatten_written_arguments(args, kwargs):
            if not isinstance(tensor, _Tensor):
                continue
            kept.append(tensor)
            if not d.is_readable(tensor):
                if not torch_guards.has_real_values(tensor):
                    raise NoValues
                continue
            tensor = as_plain_tensor(tensor)
            flags |= 0 if tensor.is_cpu else f.ON_DEVICE
            record = storages.find_or_add_record(tensor)
            if operator.asynchronous:
                sent.append(storages.mark_written_by_collective(tensor, returns_early))
            elif moved:
                results.append(storages.mark_copy_undefined_and_get_digest(tensor, self.unwritten_origin, thread))
            else:
                results.append(storages.digest_written(tensor, record, thread))
        outs, values = [], list[Any]()
        flatten_to_tensors_and_stable_values((out,), _Tensor, outs, values)
        done = {id(tensor) for tensor in kept}
        if operator.asynchronous:
            for tensor in outs:
                if id(tensor) not in done and type(tensor) in torch_guards.PLAIN_TYPES:
                    storages.mark_written_by_collective(tensor, returns_early)
            collectives.record_collective(self.recorder, operator, args, kwargs, location_id)
            if returns_early:
                collectives.note_pending_collective_from_python(self.recorder, storages, out, sent, operator.name)
            outs, values = [], []
        for at, tensor in enumerate(outs):
            if id(tensor) in done:
                continue
            if at == operator.scratch_output:
                storages.mark_scratch_as_always_equal(tensor)
                continue
            kept.append(tensor)
            if not d.is_readable(tensor):
                if not torch_guards.has_real_values(tensor):
                    raise NoValues
                flags |= f.INEXACT
                results.append(d.digest(tensor))
                continue
            tensor = as_plain_tensor(tensor)
            flags |= 0 if tensor.is_cpu else f.ON_DEVICE
            undefined = moved and storages.mark_copy_undefined_and_get_digest(tensor, self.unwritten_origin, thread)
            results.append(undefined or storages.digest_output(tensor, thread))
        if values and out is not None:
            results.append(repr(values).encode())
        if len(results) == 1 and len(results[0]) == 16:
            digest = results[0]
        else:
            digest = xxh3_128_digest(b"".join(results)) if results else NOTHING
        self._append_operator_event(writer, operator, state, (flags, location_id, inputs, scalars), digest, kept)

    def _append_operator_event(
        self, writer: Any, operator: WatchedOperator, state: ThreadState, inputs: EventInputs, digest: bytes, outs: Any
    ) -> None:
        flags, location_id, digest_in, scalars = inputs
        if operator.name_id < 0:
            operator.name_id = writer.intern_string(operator.name)
        state.operator_count += 1
        capture = self.capture
        if capture is not None and state.operator_count == capture.ordinal and state.number == capture.thread:
            kept_tensors.write_tensors_if_role_matches(capture, self.recorder, list(outs), operator.name, location_id)
        writer.append(_pack(f.OPERATOR, flags, state.number, operator.name_id, location_id, scalars, digest_in, digest))

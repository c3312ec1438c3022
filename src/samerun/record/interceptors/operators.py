"""Every operator that computes: forward, backward, optimizer."""

from __future__ import annotations

import sys
from typing import Any

from xxhash import xxh3_64_intdigest, xxh3_128_digest

from samerun.record import digest as d
from samerun.record import format as f
from samerun.record import fresh, keep, sites
from samerun.record.interceptor import Interceptor
from samerun.record.recorder import NOTHING, Recorder, fold
from samerun.record.storages import Storages

EMPTY = frozenset(
    f"aten::{name}"
    for name in ("empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided", "empty_permuted")
)
NO_VALUE = frozenset(("aten::_efficientzerotensor", "aten::set_", "aten::resize_", "aten::_resize_output_"))
OVERWRITING = frozenset(("aten::copy_", "aten::fill_", "aten::zero_"))
PLAIN = (int, float, bool, str, complex, type(None))
NODE_RING = (1 << 17) - 1


class Operator:
    """What has to be known of an operator, found out once."""

    __slots__ = ("asynchronous", "empty", "name", "number", "overwrites", "random", "silent", "written")

    def __init__(self, func: Any, random_tag: Any) -> None:
        schema = func._schema
        self.name = str(func)
        self.number = -1
        self.written: list[tuple[int, str]] = [
            (i, argument.name)
            for i, argument in enumerate(schema.arguments)
            if argument.alias_info is not None and argument.alias_info.is_write
        ]
        self.random = random_tag in func.tags
        self.overwrites = bool(self.written) and (
            self.random or schema.name in OVERWRITING or any(name == "out" for _, name in self.written)
        )
        """What the written argument held before does not matter."""
        self.empty = schema.name in EMPTY
        space = schema.name.split("::", 1)[0]
        self.silent = (
            bool(getattr(func, "is_view", False))
            or space in ("profiler", "prim", "debugprims")
            or schema.name in NO_VALUE
            or schema.name in ("aten::_local_scalar_dense", "aten::is_pinned", "aten::is_same_size")
        )
        self.asynchronous = space in ("c10d", "_c10d_functional", "c10d_functional")


def flatten(items: Any, tensor_type: type, tensors: list[Any], others: list[Any]) -> None:
    """Split arguments into tensors and the rest, in order, through lists, tuples and dicts."""
    for item in items:
        if isinstance(item, tensor_type):
            tensors.append(item)
        elif type(item) in (list, tuple):
            others.append(len(item))
            flatten(item, tensor_type, tensors, others)
        elif type(item) is dict:
            flatten(item.values(), tensor_type, tensors, others)
        elif isinstance(item, PLAIN):
            others.append(item)
        elif type(item).__module__.startswith("torch") and type(item).__name__ in _STABLE:
            others.append(str(item))
        else:
            others.append(type(item).__name__)


_STABLE = frozenset(("dtype", "device", "layout", "memory_format", "Size"))


def written_tensors(operator: Operator, args: Any, kwargs: Any) -> set[int]:
    """Ids of the tensors that an operator writes into."""
    found = set()
    for at, name in operator.written:
        value = args[at] if at < len(args) else (kwargs or {}).get(name)
        for item in value if type(value) in (list, tuple) else (value,):
            found.add(id(item))
    return found


def install(recorder: Recorder, torch: Any) -> None:
    """Enter the recording mode in this thread; other threads enter it when they start."""
    from torch.utils._python_dispatch import TorchDispatchMode, _get_current_dispatch_mode

    tensor_type = torch.Tensor
    random_tag = torch.Tag.nondeterministic_seeded
    graph_task = torch._C._current_graph_task_id
    current_node = torch._C._current_autograd_node
    next_sequence = torch._C._autograd._get_sequence_nr
    default_generator = torch.default_generator
    grad_enabled = torch.is_grad_enabled
    operators: dict[Any, Operator] = {}
    memory = recorder.config.memory
    capture = recorder.config.capture
    storages = Storages()
    kinds = sites._kinds
    place_cache: dict[tuple[int, int, str], int] = {}
    pack = f.EVENT.pack

    def forget_numbers() -> None:
        place_cache.clear()
        for operator in operators.values():
            operator.number = -1

    recorder.after_fork.append(forget_numbers)

    def place_here(writer: Any, module: str) -> int:
        frame: Any = sys._getframe(2)
        while frame is not None:
            code = frame.f_code
            kind = kinds.get(id(code))
            if kind is None:
                kind = sites.kind_of(code)
            if kind == 1:
                key = (id(code), frame.f_lineno, module)
                place = place_cache.get(key)
                if place is None:
                    place = place_cache[key] = writer.place(code.co_filename, frame.f_lineno, module)
                return place
            frame = frame.f_back
        return 0

    def note_nodes(state: Any, place: int) -> None:
        """Remember which line made the autograd nodes that are new: their backward belongs to it."""
        now = next_sequence()
        for number in range(max(state.sequence, now - 64), now):
            state.nodes[number & NODE_RING] = place
        state.sequence = now

    def record_draw(writer: Any, operator: Operator, kwargs: Any, place: int, state: Any, phase: int) -> None:
        generator = kwargs.get("generator") if kwargs else None
        own = generator is not None and generator is not default_generator
        used = generator if own else default_generator
        if used.device.type != "cpu":
            name, seed, value = f"torch.{used.device}", used.initial_seed(), used.get_state()
        else:
            name = "torch.Generator" if own else "torch"
            seed, value = used.initial_seed(), used.get_state()
        writer.append(
            pack(f.DRAW, phase, state.number, writer.string(name), place, writer.string(operator.name),
                 seed & 0xFFFFFFFFFFFFFFFF, d.dense_digest(value, 0))
        )  # fmt: skip

    class Recording(TorchDispatchMode):
        """Records what passes and changes nothing of it."""

        supports_higher_order_operators = True

        @classmethod
        def ignore_compile_internals(cls) -> bool:
            return True  # compiled programs stay compiled

        @classmethod
        def _should_skip_dynamo(cls) -> bool:
            return False  # True would import torch._dynamo at the first operator

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            state = recorder.thread
            if state.inside or recorder.stopped:
                return func(*args, **kwargs) if kwargs else func(*args)
            operator = operators.get(func)
            if operator is None:
                schema = getattr(func, "_schema", None)
                if schema is None:  # a higher-order operator
                    return func(*args, **(kwargs or {}))
                operator = operators[func] = Operator(func, random_tag)
            if operator.silent:
                if state.sequence != next_sequence() and recorder.recording and graph_task() == -1:
                    note_nodes(state, place_here(recorder.writer or recorder.open(), state.module))
                return func(*args, **kwargs) if kwargs else func(*args)
            if operator.empty:
                out = func(*args, **kwargs) if kwargs else func(*args)
                try:
                    if memory is not None:
                        fresh.fill(out, memory)
                    if recorder.recording and d.is_readable(out):
                        entry = storages.of(out, True)
                        entry.uninitialised = out.numel() > 0
                        entry.ours, entry.content = True, NOTHING
                        entry.known.clear()
                        entry.place = place_here(recorder.writer or recorder.open(), state.module)
                except Exception as error:
                    recorder.stop(f"samerun's recorder failed at {operator.name}: {error!r}")
                return out
            if not recorder.recording:
                return func(*args, **kwargs) if kwargs else func(*args)
            try:
                before = self.before(operator, args, kwargs, state)
            except Exception as error:
                recorder.stop(f"samerun's recorder failed at {operator.name}: {error!r}")
                return func(*args, **kwargs) if kwargs else func(*args)
            out = func(*args, **kwargs) if kwargs else func(*args)
            try:
                self.after(operator, args, kwargs, out, state, before)
            except Exception as error:
                recorder.stop(f"samerun's recorder failed at {operator.name}: {error!r}")
            return out

        def before(self, operator: Operator, args: Any, kwargs: Any, state: Any) -> Any:
            writer = recorder.writer or recorder.open()
            tensors: list[Any] = []
            others: list[Any] = []
            flatten(args, tensor_type, tensors, others)
            if kwargs:
                flatten(kwargs.values(), tensor_type, tensors, others)
            flags = 0
            if graph_task() != -1:
                phase, place = f.BACKWARD, 0
                node = current_node()
                if node is not None:
                    place = state.nodes.get(node._sequence_nr() & NODE_RING, 0)
                if not place:
                    place = place_here(writer, state.module)
            else:
                place = place_here(writer, state.module)
                if state.phase >= 0:
                    phase = state.phase
                elif state.modules:
                    phase = f.FORWARD
                else:
                    phase = f.BETWEEN
                    if grad_enabled() and any(tensor.requires_grad for tensor in tensors):
                        phase = f.FORWARD
                if state.sequence != next_sequence():
                    note_nodes(state, place)
            parts = []
            thread = state.number
            skip = written_tensors(operator, args, kwargs) if operator.overwrites else ()
            for tensor in tensors:
                if id(tensor) in skip:
                    continue
                if not d.is_readable(tensor):
                    flags |= f.INEXACT
                    parts.append(d.digest(tensor))
                    continue
                entry = storages.of(tensor)
                if entry.writer != thread and entry.writer >= 0:
                    flags |= f.FOREIGN_WRITE
                if entry.uninitialised:
                    flags |= f.UNINITIALISED
                    if recorder.due(("uninitialised", operator.name, entry.place)):
                        recorder.emit(f.FRESH, name=operator.name, place=entry.place, phase=f.HOST)
                parts.append(storages.value(tensor, entry))
            if not parts:
                flags |= f.NO_INPUTS
            if operator.random:
                record_draw(writer, operator, kwargs, place, state, phase)
            return phase | flags, place, fold(parts), xxh3_64_intdigest(repr(others).encode()) & 0xFFFFFFFF

        def after(self, operator: Operator, args: Any, kwargs: Any, out: Any, state: Any, before: Any) -> None:
            writer = recorder.writer or recorder.open()
            if writer is None:
                return
            results: list[bytes] = []
            kept: list[Any] = []
            done: list[int] = []
            flags, place, inputs, scalars = before
            thread = state.number
            if operator.asynchronous:
                out = None
            for at, name in operator.written:
                value = args[at] if at < len(args) else (kwargs or {}).get(name)
                tensors: list[Any] = []
                flatten((value,), tensor_type, tensors, [])
                for tensor in tensors:
                    done.append(id(tensor))
                    kept.append(tensor)
                    if d.is_readable(tensor):
                        entry = storages.of(tensor)
                        if operator.asynchronous:
                            entry.ours = False
                        else:
                            results.append(storages.written(tensor, entry, thread))
            if isinstance(out, tensor_type):
                outs = [out]
            elif out is None:
                outs = []
            else:
                outs = []
                flatten((out,), tensor_type, outs, results_of := [])
                results.extend(repr(item).encode() for item in results_of)
            for tensor in outs:
                if id(tensor) in done:
                    continue
                kept.append(tensor)
                if not d.is_readable(tensor):
                    flags |= f.INEXACT
                    results.append(d.digest(tensor))
                elif storages.knows(tensor):  # an alias that its schema does not speak of
                    results.append(storages.value(tensor, storages.of(tensor)))
                else:
                    results.append(storages.made(tensor, storages.of(tensor, True), thread))
            if len(results) == 1 and len(results[0]) == 16:
                digest = results[0]
            else:
                digest = xxh3_128_digest(b"".join(results)) if results else NOTHING
            if operator.number < 0:
                operator.number = writer.string(operator.name)
            state.ordinal += 1
            if capture is not None and state.ordinal == capture.ordinal and thread == capture.thread:
                keep.keep(capture, recorder, kept, operator.name)
            writer.append(pack(f.OPERATOR, flags, thread, operator.number, place, scalars, inputs, digest))

    def enter() -> None:
        """Enter the mode in this thread, once."""
        if recorder.thread.mode is None:
            recorder.thread.mode = Recording()
            recorder.thread.mode.__enter__()

    def leave() -> None:
        """Leave the mode, if nothing was entered on top of it; else it stays and does nothing."""
        mode = recorder.thread.mode
        if mode is not None and memory is None and _get_current_dispatch_mode() is mode:
            mode.__exit__(None, None, None)
            recorder.thread.mode = None

    def step_ended() -> None:
        storages.epoch += 1
        if recorder.recording:
            enter()
        else:
            leave()

    recorder.on_step.append(step_ended)
    recorder.enter_operators = enter
    _tell_compiler(torch, Recording)
    if recorder.recording or memory is not None:
        enter()

    def share(original: Any) -> Any:
        def numpy(self: Any, *args: Any, **kwargs: Any) -> Any:
            if not recorder.thread.inside and not recorder.stopped:
                try:
                    if d.is_readable(self):
                        storages.shared_with_numpy(self)
                except Exception:
                    pass
            return original(self, *args, **kwargs)

        return numpy

    for name in ("numpy", "__dlpack__"):
        original = getattr(torch.Tensor, name)
        replacement = share(original)
        replacement.__name__, replacement.__doc__ = name, original.__doc__
        setattr(torch.Tensor, name, replacement)


def _tell_compiler(torch: Any, mode: Any) -> None:
    """Keep torch.compile from compiling the recorder itself."""
    try:
        frames = torch._C._dynamo.eval_frame
        for function in (mode.__torch_dispatch__, mode.before, mode.after):
            frames.skip_code(function.__code__)
    except AttributeError:
        pass


INTERCEPTOR = Interceptor("operators", "torch", install)

"""Every operator that computes: forward, backward, optimizer; compiled graphs; memory of tensors that others share.

Memory that NumPy, DLPack or another process can write changes without an operator, so known digests of it end here.
A compiled graph is recorded as one operator. With the pin `eager` nothing is compiled. `samerun check --double`
executes each compiled graph twice.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any

from xxhash import xxh3_64_intdigest, xxh3_128_digest

from samerun.record import pins
from samerun.record.digests.digest import is_readable
from samerun.record.digests.state_digests import digest_tree
from samerun.record.trace import format as f
from samerun.record.watching import stack_frames
from samerun.record.watching.interceptor import Interceptor, wrap_attribute
from samerun.record.watching.recorder import Recorder


def pin_torch_settings_if_configured(recorder: Recorder, torch: Any) -> None:
    if pins.THREADS in recorder.config.pins:
        torch.set_num_threads(1)
        torch.set_num_threads = lambda number: None
    if pins.DETERMINISTIC in recorder.config.pins:
        torch.use_deterministic_algorithms(True, warn_only=True)
        torch.utils.deterministic.fill_uninitialized_memory = False


TORCH_PINS = Interceptor("held-still", "torch", pin_torch_settings_if_configured)


MOST_CONTENTS = 20_000
"""Of more memory that is alive at the end there is one digest."""


def set_up_operator_mode(recorder: Recorder, torch: Any) -> None:
    """Enter the recording mode in this thread; other threads enter it when they start."""
    import torch.utils._python_dispatch as dispatch

    from samerun.record.digests.torch_guards import HiddenFromProgram
    from samerun.record.watching.operator_mode import OperatorMode, OperatorTable
    from samerun.record.watching.quick_mode import make_operator_mode
    from samerun.record.watching.torch_internals import exclude_from_compilation

    table = OperatorTable(recorder)
    memory = recorder.config.fresh_memory
    exclude_from_compilation(OperatorMode.__torch_dispatch__)

    def make_mode() -> OperatorMode:
        if recorder.doubling is None:
            return make_operator_mode(table)
        return DoubleMode(table, recorder.doubling)

    if recorder.config.executions:
        from samerun.record.watching.double_execution.doubling import Doubling
        from samerun.record.watching.double_execution.mode import DoubleMode

        exclude_from_compilation(DoubleMode.__torch_dispatch__)
        recorder.doubling = Doubling(recorder)

    def enter() -> None:
        """Enter the mode in this thread, once."""
        if recorder.thread.mode is None:
            mode: Any = make_mode()
            recorder.thread.mode = mode
            mode.__enter__()

    def leave() -> None:
        """Leave the mode, if nothing was entered on top of it; else it stays and records nothing."""
        mode = recorder.thread.mode
        top: Any = dispatch._get_current_dispatch_mode()
        if mode is not None and memory is None and top is mode:
            mode.__exit__(None, None, None)
            recorder.thread.mode = None

    def step_ended() -> None:
        table.storages.epoch += 1
        if recorder.recording:
            enter()
        else:
            leave()

    if recorder.config.replay is not None:
        from samerun.record.watching.replay import Replayer

        recorder.replayer = Replayer(recorder, recorder.config.replay)
    reader = table.add_operator_unless_higher_order(torch.ops.aten._local_scalar_dense.default)

    def record_reads(wanted: bool) -> None:
        if reader is not None and recorder.doubling is None:
            reader.silent = not wanted

    recorder.begin_recording_reads = partial(record_reads, True)
    recorder.fork_callbacks.append(partial(record_reads, False))
    recorder.step_callbacks.append(step_ended)

    def record_live_memory_if_order_may_vary() -> None:
        """What threads or tasks wrote need not be read by any operator: what is there at the end counts as a result."""
        if not recorder.order_may_vary or not recorder.recording or recorder.stopped:
            return
        recorder.thread.inside_samerun += 1
        try:
            with HiddenFromProgram():
                contents = table.storages.count_trusted_cpu_storages_by_digest()
        finally:
            recorder.thread.inside_samerun -= 1
        if len(contents) > MOST_CONTENTS:
            contents = Counter({xxh3_128_digest(b"".join(sorted(contents))): sum(contents.values())})
        for value, count in sorted(contents.items()):
            recorder.emit(f.MEMORY, inputs=count, outputs=value, phase=f.BETWEEN)

    recorder.end_callbacks.append(record_live_memory_if_order_may_vary)
    recorder.enter_operators, recorder.leave_operators = enter, leave
    if recorder.recording or memory is not None:
        enter()
    recorder.drop_known_digests = table.storages.drop_known_digests
    recorder.take_collective_writes = table.storages.take_collective_writes
    recorder.note_collective_complete = table.storages.note_collective_complete
    for name in ("numpy", "__dlpack__"):
        replace_method_to_distrust_memory(recorder, table, torch.Tensor, name)
    for name in ("_share_fd_cpu_", "_share_filename_cpu_"):  # `share_memory_`, and what goes to other processes
        replace_method_to_distrust_memory(recorder, table, torch.UntypedStorage, name)
    for name in ("resize_", "fill_", "copy_", "__setitem__", "_set_from_file"):
        replace_method_to_distrust_memory(recorder, table, torch.UntypedStorage, name)


def replace_method_to_distrust_memory(recorder: Recorder, table: Any, owner: Any, method: str) -> None:
    """From `tensor.numpy()` and the like on, others can write to the memory without an operator.

    Methods of a storage change its memory at once.
    """
    original = getattr(owner, method)

    def call_and_distrust(self: Any, *args: Any, **kwargs: Any) -> Any:
        if not recorder.thread.inside_samerun and not recorder.stopped:
            try:
                if not hasattr(self, "untyped_storage"):
                    table.storages.distrust_and_drop_digests(self)
                elif is_readable(self):
                    table.storages.distrust(self.untyped_storage())
            except Exception as error:
                recorder.stop(f"samerun's recorder failed at {owner.__name__}.{method}: {error!r}")
        return original(self, *args, **kwargs)

    call_and_distrust.__name__, call_and_distrust.__qualname__ = method, f"{owner.__name__}.{method}"
    call_and_distrust.__doc__ = original.__doc__
    setattr(owner, method, call_and_distrust)


OPERATORS = Interceptor("operators", "torch", set_up_operator_mode)


TRACING_FUNCTIONS = ("_create_function_from_trace", "_create_function_from_trace_with_dict", "_create_graph_by_tracing")
TRACING_METHODS = ("_create_method_from_trace", "_create_method_from_trace_with_dict")


def leave_mode_while_torch_jit_traces(recorder: Recorder, torch: Any) -> None:
    """torch.jit.trace fails under any dispatch mode, one that does nothing included: parameters that require gradients
    reach its tracer as constants. So the mode is off while it calls the program's function. What it computes there is
    computed again when the traced function is called.
    """
    import torch.utils._python_dispatch as dispatch

    def pop_modes() -> list[Any]:
        popped = []
        while stack := dispatch._get_current_dispatch_mode_stack():
            popped.append(stack[-1])
            dispatch._pop_mode(getattr(stack[-1], "_mode_key", None))
        return popped[::-1]

    def wrap_tracing(original: Any) -> Any:
        def trace(*args: Any, **kwargs: Any) -> Any:
            if recorder.thread.mode is None:
                return original(*args, **kwargs)
            modes = pop_modes()
            for mode in modes:
                if mode is not recorder.thread.mode:
                    dispatch._push_mode(mode)
            try:
                return original(*args, **kwargs)
            finally:
                pop_modes()
                for mode in modes:
                    dispatch._push_mode(mode)

        return trace

    for name in TRACING_FUNCTIONS:
        wrap_attribute(torch._C, name, wrap_tracing)
    for name in TRACING_METHODS:
        wrap_attribute(torch._C.ScriptModule, name, wrap_tracing)


JIT_TRACING = Interceptor("jit-tracing", "torch", leave_mode_while_torch_jit_traces)


MEMORY_GIVING_METHODS = ("numpy", "__array__", "__dlpack__", "data_ptr")
"""Methods of a tensor that give its memory away."""
MEMORY_TAKING_FUNCTIONS = ("from_numpy", "frombuffer", "as_tensor", "asarray", "from_dlpack")
"""Functions of torch that make a tensor of memory that others have."""


def intercept_memory_sharing_if_doubling(recorder: Recorder, torch: Any) -> None:
    if recorder.doubling is None:
        return
    doubling, tensor_type = recorder.doubling, torch.Tensor

    def record_sharing(tensor: Any, how: str) -> None:
        if recorder.thread.inside_samerun or recorder.stopped or torch.compiler.is_compiling():
            return
        recorder.thread.inside_samerun += 1
        try:
            user_line = stack_frames.find_user_line()
            writer = recorder.writer or recorder.open_writer()
            if writer is not None and isinstance(tensor, tensor_type):
                location_id = (
                    writer.intern_location(user_line.file, user_line.line, recorder.thread.module)
                    if user_line.line
                    else 0
                )
                doubling.note_shared_memory(tensor, how, location_id)
        except Exception as error:
            recorder.stop(f"samerun's recorder failed at {how}: {error!r}")
        finally:
            recorder.thread.inside_samerun -= 1

    def wrap_giving(name: str) -> Callable[[Any], Any]:
        def wrap(original: Any) -> Any:
            def give(self: Any, *args: Any, **kwargs: Any) -> Any:
                # Libraries, and samerun itself, ask for addresses all the time, and only to read.
                if name != "data_ptr" or stack_frames.classify_code(sys._getframe(1).f_code) == stack_frames.USER:
                    record_sharing(self, f"Tensor.{name}()")
                return original(self, *args, **kwargs)

            return give

        return wrap

    def wrap_taking(name: str) -> Callable[[Any], Any]:
        def wrap(original: Any) -> Any:
            def take(*args: Any, **kwargs: Any) -> Any:
                made = original(*args, **kwargs)
                if args and not isinstance(args[0], (tensor_type, list, tuple, int, float)):
                    record_sharing(made, f"torch.{name}()")
                return made

            return take

        return wrap

    for name in MEMORY_GIVING_METHODS:
        wrap_attribute(tensor_type, name, wrap_giving(name))
    for name in MEMORY_TAKING_FUNCTIONS:
        wrap_attribute(torch, name, wrap_taking(name))


SHARING = Interceptor("sharing", "torch", intercept_memory_sharing_if_doubling)


def record_torch_compile_and_skip_if_pinned_eager(recorder: Recorder, torch: Any) -> None:
    eager = pins.EAGER in recorder.config.pins

    def wrap_compile(original: Any) -> Any:
        def compile(model: Any = None, *args: Any, **kwargs: Any) -> Any:
            backend = str(kwargs.get("backend", "inductor"))
            recorder.emit_host_event(f.FACT, "torch.compile", value=backend.encode(), only_at_user_code=True)
            if eager:
                return (lambda function: function) if model is None else model
            return original(model, *args, **kwargs)

        return compile

    wrap_attribute(torch, "compile", wrap_compile)


COMPILE_CALLS = Interceptor("compile-calls", "torch", record_torch_compile_and_skip_if_pinned_eager)


def intercept_compiled_graph_calls(recorder: Recorder, output_code: Any) -> None:
    """Wrap the call of a compiled graph."""
    import torch

    from samerun.record.watching.torch_internals import location_of_running_autograd_node

    kind = output_code.CompiledFxGraph
    call = kind.__call__

    def call_recorded(self: Any, inputs: Any) -> Any:
        state = recorder.thread
        if recorder.stopped or not recorder.recording or state.inside_samerun:
            return call(self, inputs)
        state.inside_samerun += 1
        try:
            before = xxh3_64_intdigest(b"".join(digest_tree(item, torch.Tensor) for item in inputs))
        except Exception:
            before = 0
        finally:
            state.inside_samerun -= 1
        input_tensors = [item for item in inputs if isinstance(item, torch.Tensor)]  # the call empties the list
        out = call(self, inputs)
        state.inside_samerun += 1
        try:
            recorder.drop_known_digests(input_tensors)
            after = digest_tree(out, torch.Tensor)
        except Exception:
            after = b"\0" * 16
        finally:
            state.inside_samerun -= 1
        state.operator_count += 1
        location_id = location_of_running_autograd_node(state)
        if not location_id:
            file, line, _ = stack_frames.find_user_line()
            writer = recorder.writer or recorder.open_writer()
            location_id = writer.intern_location(file, line, state.module) if writer is not None and line else 0
        phase = f.FORWARD if torch._C._current_autograd_node() is None else f.BACKWARD
        recorder.emit(
            f.OPERATOR, name="compiled graph", location_id=location_id, inputs=before, outputs=after, phase=phase
        )
        return out

    kind.__call__ = call_recorded


COMPILED_GRAPHS = Interceptor("compiled", "torch._inductor.output_code", intercept_compiled_graph_calls)


def double_compiled_graphs_if_doubling(recorder: Recorder, output_code: Any) -> None:
    """Wrap the call of a compiled graph, around what records it."""
    if recorder.doubling is None:
        return
    from samerun.record.watching.double_execution.doubling import DoubledRegion

    doubling = recorder.doubling

    def wrap_call(original: Any) -> Any:
        def call(self: Any, inputs: Any) -> Any:
            state = recorder.thread
            watching = recorder.recording and not recorder.stopped and not state.inside_samerun
            if not watching or state.mode is None or doubling.in_compiled_region():
                return original(self, inputs)
            region: Any = None
            state.inside_samerun += 1
            try:
                region = DoubledRegion(doubling, state, inputs)
            except Exception as error:
                recorder.stop(f"samerun could not look into a compiled region: {error!r}")
            finally:
                state.inside_samerun -= 1
            # Kernels write between the operators of a region, where no operator mode sees it.
            with doubling.enter_compiled_region():
                out = original(self, inputs)
            if region is not None and not recorder.stopped:
                state.inside_samerun += 1
                try:
                    region.execute_again_and_report_difference(self, out)
                except Exception as error:
                    recorder.stop(f"samerun could not execute a compiled region twice: {error!r}")
                finally:
                    state.inside_samerun -= 1
            return out

        return call

    wrap_attribute(output_code.CompiledFxGraph, "__call__", wrap_call)


DOUBLED_GRAPHS = Interceptor("compiled-twice", "torch._inductor.output_code", double_compiled_graphs_if_doubling)

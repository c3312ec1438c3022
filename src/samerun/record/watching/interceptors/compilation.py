"""`torch.compile`: where a program calls it, and the compiled graphs that run, recorded as one operator each.

With the pin `eager` nothing is compiled. `samerun check --double` executes each compiled graph twice.
"""

from __future__ import annotations

from typing import Any

from xxhash import xxh3_64_intdigest

from samerun.record import pins
from samerun.record.digests.trees import digest_tree
from samerun.record.trace import format as f
from samerun.record.watching import sites
from samerun.record.watching.interceptor import Interceptor, wrap_attribute
from samerun.record.watching.recorder import Recorder


def install_torch_compile(recorder: Recorder, torch: Any) -> None:
    eager = pins.EAGER in recorder.config.pins

    def wrap_compile(original: Any) -> Any:
        def compile(model: Any = None, *args: Any, **kwargs: Any) -> Any:
            backend = str(kwargs.get("backend", "inductor"))
            recorder.emit_host_event(f.FACT, "torch.compile", value=backend.encode(), user_only=True)
            if eager:
                return (lambda function: function) if model is None else model
            return original(model, *args, **kwargs)

        return compile

    wrap_attribute(torch, "compile", wrap_compile)


COMPILE_CALLS = Interceptor("compile-calls", "torch", install_torch_compile)


def install_compiled_graph_recording(recorder: Recorder, output_code: Any) -> None:
    """Wrap the call of a compiled graph."""
    import torch

    from samerun.record.watching.torch_internals import location_of_running_node

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
            recorder.forget_values(input_tensors)
            after = digest_tree(out, torch.Tensor)
        except Exception:
            after = b"\0" * 16
        finally:
            state.inside_samerun -= 1
        state.operator_count += 1
        location_id = location_of_running_node(state)
        if not location_id:
            file, line, _ = sites.find_user_line()
            writer = recorder.writer or recorder.open_writer()
            location_id = writer.intern_location(file, line, state.module) if writer is not None and line else 0
        phase = f.FORWARD if torch._C._current_autograd_node() is None else f.BACKWARD
        recorder.emit(
            f.OPERATOR, name="compiled graph", location_id=location_id, inputs=before, outputs=after, phase=phase
        )
        return out

    kind.__call__ = call_recorded


COMPILED_GRAPHS = Interceptor("compiled", "torch._inductor.output_code", install_compiled_graph_recording)


def install_compiled_graph_doubling(recorder: Recorder, output_code: Any) -> None:
    """Wrap the call of a compiled graph, around what records it."""
    if recorder.doubling is None:
        return
    from samerun.record.watching.double.doubled_calls import DoubledRegion

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
                    region.execute_again_and_compare(self, out)
                except Exception as error:
                    recorder.stop(f"samerun could not execute a compiled region twice: {error!r}")
                finally:
                    state.inside_samerun -= 1
            return out

        return call

    wrap_attribute(output_code.CompiledFxGraph, "__call__", wrap_call)


DOUBLED_GRAPHS = Interceptor("compiled-twice", "torch._inductor.output_code", install_compiled_graph_doubling)

"""Regions compiled by inductor: their kernels are no operators, so the region counts as one."""

from __future__ import annotations

from typing import Any

from xxhash import xxh3_64_intdigest

from samerun.record.digests.trees import tree_digest
from samerun.record.trace import format as f
from samerun.record.watching import sites
from samerun.record.watching.interceptor import Interceptor
from samerun.record.watching.recorder import Recorder


def install(recorder: Recorder, output_code: Any) -> None:
    """Wrap the call of a compiled graph."""
    import torch

    from samerun.record.watching.nodes import place_of_node

    kind = output_code.CompiledFxGraph
    call = kind.__call__

    def watched(self: Any, inputs: Any) -> Any:
        state = recorder.thread
        if recorder.stopped or not recorder.recording or state.inside:
            return call(self, inputs)
        state.inside += 1
        try:
            before = xxh3_64_intdigest(b"".join(tree_digest(item, torch.Tensor) for item in inputs))
        except Exception:
            before = 0
        finally:
            state.inside -= 1
        given = [item for item in inputs if isinstance(item, torch.Tensor)]  # the call empties the list
        out = call(self, inputs)
        state.inside += 1
        try:
            recorder.forget_values(given)
            after = tree_digest(out, torch.Tensor)
        except Exception:
            after = b"\0" * 16
        finally:
            state.inside -= 1
        state.ordinal += 1
        place = place_of_node(state)
        if not place:
            file, line, _ = sites.host_site()
            writer = recorder.writer or recorder.open()
            place = writer.intern_location(file, line, state.module) if writer is not None and line else 0
        phase = f.FORWARD if torch._C._current_autograd_node() is None else f.BACKWARD
        recorder.emit(f.OPERATOR, name="compiled graph", place=place, inputs=before, outputs=after, phase=phase)
        return out

    kind.__call__ = watched


INTERCEPTOR = Interceptor("compiled", "torch._inductor.output_code", install)

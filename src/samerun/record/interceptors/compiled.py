"""Regions compiled by inductor: their kernels are no operators, so the region counts as one."""

from __future__ import annotations

from typing import Any

from samerun.record import format as f
from samerun.record.interceptor import Interceptor
from samerun.record.recorder import Recorder, fold
from samerun.record.trees import tree_digest


def install(recorder: Recorder, output_code: Any) -> None:
    """Wrap the call of a compiled graph."""
    import torch

    kind = output_code.CompiledFxGraph
    call = kind.__call__

    def watched(self: Any, inputs: Any) -> Any:
        state = recorder.thread
        if recorder.stopped or not recorder.recording or state.inside:
            return call(self, inputs)
        state.inside += 1
        try:
            before = fold([tree_digest(item, torch.Tensor) for item in inputs])
        except Exception:
            before = 0
        finally:
            state.inside -= 1
        out = call(self, inputs)
        state.inside += 1
        try:
            after = tree_digest(out, torch.Tensor)
        except Exception:
            after = b"\0" * 16
        finally:
            state.inside -= 1
        state.ordinal += 1
        recorder.host(f.OPERATOR, "compiled graph", inputs=before, outputs=after)
        return out

    kind.__call__ = watched


INTERCEPTOR = Interceptor("compiled", "torch._inductor.output_code", install)

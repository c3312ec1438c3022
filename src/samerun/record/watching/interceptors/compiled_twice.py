"""Regions compiled by inductor, for `samerun check --double`."""

from __future__ import annotations

from typing import Any

from samerun.record.watching.interceptor import Interceptor, replace
from samerun.record.watching.recorder import Recorder


def install(recorder: Recorder, output_code: Any) -> None:
    """Wrap the call of a compiled graph, around what records it."""
    if recorder.doubling is None:
        return
    from samerun.record.watching.double.region import Region

    doubling = recorder.doubling

    def twice(original: Any) -> Any:
        def call(self: Any, inputs: Any) -> Any:
            state = recorder.thread
            if recorder.stopped or not recorder.recording or state.inside or state.mode is None or doubling.apart():
                return original(self, inputs)
            region: Any = None
            state.inside += 1
            try:
                region = Region(doubling, state, inputs)
            except Exception as error:
                recorder.stop(f"samerun could not look into a compiled region: {error!r}")
            finally:
                state.inside -= 1
            with doubling.kept_apart():  # kernels write between the operators of a region where nobody sees it
                out = original(self, inputs)
            if region is not None and not recorder.stopped:
                state.inside += 1
                try:
                    region.compare(self, out)
                except Exception as error:
                    recorder.stop(f"samerun could not execute a compiled region twice: {error!r}")
                finally:
                    state.inside -= 1
            return out

        return call

    replace(output_code.CompiledFxGraph, "__call__", twice)


INTERCEPTOR = Interceptor("compiled-twice", "torch._inductor.output_code", install)

"""What `torch.compile` made, inside `portable()`: the program's own code runs in its place, operator by operator.

Compiled code decides by itself what it fuses and in which order it adds, so it cannot have the specified bits; and code
that runs below the dispatcher would not even be seen. So inside `portable()` a compiled function is the function that
was compiled, and what was compiled to machine code and is called some other way (a backward pass whose forward pass ran
outside) is refused.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from types import ModuleType
from typing import Any

from torch._C._dynamo.eval_frame import set_eval_frame

from samerun.base.errors import NotPortableError
from samerun.base.hooks import PostImportHooks

LeaveCallback = Callable[[], object]
MESSAGE = "portable(): torch.compile has no effect inside; compiled code runs as it was written, operator by operator."

_after_import = PostImportHooks()
_has_warned = False


def install_torch_compile_hooks(get_portable_mode: Callable[[], Any], find_source_location: Callable[[], str]) -> None:
    """Once a process: change what torch's compiler does inside, now or when it is imported."""

    def hook_dynamo(module: ModuleType) -> None:
        choose_callback = getattr(module, "_callback_from_stance", None)
        if choose_callback is None:
            return  # another torch: then frames are compiled, and the compiled graphs are refused

        set_frame_count = getattr(module, "set_fullgraph_compiled_frame_count", None)

        def choose_no_callback_inside(callback: Any) -> Any:
            if callback is None or get_portable_mode() is None:
                return choose_callback(callback)
            _warn_once_compile_is_disabled()
            if set_frame_count is not None:
                set_frame_count(-1)  # or fullgraph=True complains that nothing was compiled
            return None  # frames run as they are; False would let compiled ones run

        module._callback_from_stance = choose_no_callback_inside  # type: ignore[attr-defined]

    def hook_inductor(module: ModuleType) -> None:
        run_graph = module.CompiledFxGraph.__call__

        def run_graph_outside(self: Any, inputs: Any) -> Any:
            if get_portable_mode() is not None:
                raise NotPortableError(
                    f"{find_source_location()}: what torch.compile made outside portable() has no portable bits.",
                    "Run its forward pass inside too: compiled functions then run operator by operator.",
                )
            return run_graph(self, inputs)

        module.CompiledFxGraph.__call__ = run_graph_outside

    _after_import.call_now_or_after_import("torch._dynamo.eval_frame", hook_dynamo)
    _after_import.call_now_or_after_import("torch._inductor.output_code", hook_inductor)
    _after_import.install()


def _warn_once_compile_is_disabled() -> None:
    global _has_warned
    if not _has_warned:
        _has_warned = True
        warnings.warn(MESSAGE, UserWarning, stacklevel=4)


def stop_compiling_frames() -> LeaveCallback:
    """Have this thread compile no frames (a compiled function may be what entered); what is returned takes it up again.

    Otherwise the kernels themselves, which run with no mode in force, would be compiled.
    """
    callback_before = set_eval_frame(None)
    return lambda: set_eval_frame(callback_before)

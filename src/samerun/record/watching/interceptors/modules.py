"""Which module's forward are we in, and what models there are."""

from __future__ import annotations

import weakref
from typing import Any

from xxhash import xxh3_128_digest

from samerun.record.digests.digest import digest
from samerun.record.digests.trees import named_buffers, named_modules, named_parameters
from samerun.record.trace import format as f
from samerun.record.watching.hidden_frames import hide_frame_from_warnings
from samerun.record.watching.interceptor import Interceptor
from samerun.record.watching.recorder import Recorder


def install_module_tracking(recorder: Recorder, torch: Any) -> None:
    """Wrap the one method through which every module is called.

    Global forward hooks would do, but torch.compile warns where it finds some; full backward hooks change
    the bits of gradients.
    """
    names: dict[int, tuple[Any, str]] = {}
    roots: dict[int, Any] = {}
    is_compiling = torch.compiler.is_compiling

    def learn_names(root: Any) -> None:
        if id(root) not in roots:
            roots[id(root)] = weakref.ref(root)
        try:
            for name, module in named_modules(root):
                names[id(module)] = (weakref.ref(module), name or type(root).__name__)
        except Exception:
            names[id(root)] = (weakref.ref(root), type(root).__name__)

    def name_of(module: Any, outermost: bool) -> str:
        known = names.get(id(module))
        if known is None or known[0]() is not module:
            if not outermost:
                return type(module).__name__
            learn_names(module)
            known = names[id(module)]
        return known[1]

    original = torch.nn.Module._call_impl

    def _call_impl(self: Any, *args: Any, **kwargs: Any) -> Any:
        if is_compiling():
            return original(self, *args, **kwargs)
        state = recorder.thread
        state.outer_modules.append(state.module)
        state.module = name_of(self, len(state.outer_modules) == 1)
        try:
            return original(self, *args, **kwargs)
        finally:
            state.module = state.outer_modules.pop()

    _call_impl.__qualname__ = original.__qualname__
    torch.nn.Module._call_impl = hide_frame_from_warnings(_call_impl)
    recorder.root_models = roots
    recorder.fork_callbacks.append(roots.clear)  # what a child does with its parent's model is in its events
    recorder.end_callbacks.append(lambda: record_final_models(recorder))
    recorder.cleared_on_restart += [roots, names]  # the models of this trace are those that are called in it


def record_final_models(recorder: Recorder) -> None:
    """At the end: what every model that was called holds, however it was written."""
    recorder.thread.inside_samerun += 1
    for reference in list(recorder.root_models.values()):
        root = reference()
        if root is None:
            continue
        try:
            tensors = [*named_parameters(root), *named_buffers(root)]
            value = b"".join(name.encode() + digest(t) for name, t in tensors)
        except Exception:  # a lazy module that never saw data
            continue
        recorder.emit(
            f.FINAL, name=type(root).__name__, inputs=len(tensors), outputs=xxh3_128_digest(value), phase=f.BETWEEN
        )
    recorder.thread.inside_samerun -= 1


INTERCEPTOR = Interceptor("modules", "torch", install_module_tracking)

"""`torch.save` and `torch.load`: what was written and read, by the values of its tensors."""

from __future__ import annotations

import os
from typing import Any

from samerun.record.digests.trees import tree_digest
from samerun.record.trace import format as f
from samerun.record.watching.interceptor import Interceptor, replace
from samerun.record.watching.recorder import Recorder


def install(recorder: Recorder, torch: Any) -> None:
    def note(kind: int, name: str, value: Any, target: Any) -> None:
        if recorder.stopped or recorder.thread.inside:
            return
        recorder.thread.inside += 1
        try:
            outputs = tree_digest(value, torch.Tensor)
        except Exception:
            outputs = b"\0" * 16
        finally:
            recorder.thread.inside -= 1
        if kind == f.SAVE and recorder.config.receipt and isinstance(target, (str, os.PathLike)):
            recorder.outputs[os.path.abspath(os.fsdecode(target))] = None  # torch's own writer is not seen opening it
        path = os.path.basename(os.fspath(target)) if isinstance(target, (str, os.PathLike)) else ""
        recorder.host(kind, name, aux=str(path), outputs=outputs, user_only=True)

    def saving(original: Any) -> Any:
        def save(obj: Any, f_: Any = None, *args: Any, **kwargs: Any) -> Any:
            if f_ is None and "f" in kwargs:
                f_ = kwargs.pop("f")
            note(f.SAVE, "torch.save", obj, f_)
            return original(obj, f_, *args, **kwargs)

        return save

    def loading(original: Any) -> Any:
        def load(f_: Any = None, *args: Any, **kwargs: Any) -> Any:
            if f_ is None and "f" in kwargs:
                f_ = kwargs.pop("f")
            value = original(f_, *args, **kwargs)
            note(f.LOAD, "torch.load", value, f_)
            return value

        return load

    replace(torch, "save", saving)
    replace(torch, "load", loading)


INTERCEPTOR = Interceptor("checkpoints", "torch", install)

"""Collectives of Python objects: what ranks tell each other about the host is not a computed value.

torch pickles the objects into tensors of bytes. The path of a temporary folder, a time or the name of a run would count
as a difference there, though nothing is computed from it; what is computed from an object is compared as always.
"""

from __future__ import annotations

import sys
from typing import Any

from samerun.record.watching.interceptor import Interceptor, wrap_attribute
from samerun.record.watching.recorder import Recorder

_NAMES = (
    "all_gather_object", "gather_object", "broadcast_object_list", "scatter_object_list", "send_object_list",
    "recv_object_list",
)  # fmt: skip


def leave_out_pickled_objects(recorder: Recorder, module: Any) -> None:
    """Record none of the operators that carry pickled objects."""

    def wrap_collective(original: Any) -> Any:
        def object_collective(*args: Any, **kwargs: Any) -> Any:
            recorder.thread.inside_samerun += 1
            try:
                return original(*args, **kwargs)
            finally:
                recorder.thread.inside_samerun -= 1

        return object_collective

    package = sys.modules.get("torch.distributed")
    for name in _NAMES:
        original = getattr(module, name, None)
        wrap_attribute(module, name, wrap_collective)
        if original is not None and getattr(package, name, None) is original:  # loaded before recording began
            setattr(package, name, getattr(module, name))


OBJECT_COLLECTIVES = Interceptor("object-collectives", "torch.distributed.distributed_c10d", leave_out_pickled_objects)

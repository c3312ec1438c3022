"""What ranks tell each other: Python objects, messages from whoever comes first, collectives that are waited for later.

Python objects are pickled into tensors of bytes. The path of a temporary folder, a time or the name of a run would
count as a difference there, though nothing is computed from it; what is computed from an object is compared as always.
So the operators that carry objects are not recorded.
"""

from __future__ import annotations

import sys
from typing import Any

from samerun.record.trace import format as f
from samerun.record.watching.interceptor import Interceptor, wrap_attribute
from samerun.record.watching.recorder import Recorder

_OF_OBJECTS = (
    "all_gather_object", "gather_object", "broadcast_object_list", "scatter_object_list", "send_object_list",
    "recv_object_list",
)  # fmt: skip
ANY_SOURCE = "torch.distributed.recv"
"""Name of the event that a message came from a rank which the program did not name."""


def watch_rank_messages(recorder: Recorder, module: Any) -> None:
    """Leave out pickled objects; record from which rank a message came; learn when a collective was waited for."""

    def wrap_collective(original: Any) -> Any:
        def object_collective(*args: Any, **kwargs: Any) -> Any:
            recorder.thread.inside_samerun += 1
            try:
                return original(*args, **kwargs)
            finally:
                recorder.thread.inside_samerun -= 1

        return object_collective

    def wrap_recv(original: Any) -> Any:
        def recv(*args: Any, **kwargs: Any) -> Any:
            source = original(*args, **kwargs)
            if kwargs.get("src", args[1] if len(args) > 1 else None) is None and kwargs.get("group_src") is None:
                recorder.emit_host_event(f.COMPLETION, ANY_SOURCE, value=str(source).encode(), only_at_user_code=True)
            return source

        return recv

    def wrap_wait(original: Any) -> Any:
        def wait(self: Any, *args: Any, **kwargs: Any) -> Any:
            result = original(self, *args, **kwargs)
            recorder.note_waited(self, True)
            return result

        return wait

    def wrap_other_way_to_wait(original: Any) -> Any:
        def look(self: Any, *args: Any, **kwargs: Any) -> Any:
            recorder.note_waited(self, False)
            return original(self, *args, **kwargs)

        return look

    def wrap_init(original: Any) -> Any:
        def init_process_group(*args: Any, **kwargs: Any) -> None:
            original(*args, **kwargs)
            recorder.emit_host_event(f.FACT, f.RANK_OF_PROCESS, aux=str(module.get_rank()))

        return init_process_group

    package = sys.modules.get("torch.distributed")
    wrapping = [*((name, wrap_collective) for name in _OF_OBJECTS), ("recv", wrap_recv)]
    for name, wrap in (*wrapping, ("init_process_group", wrap_init)):
        original = getattr(module, name, None)
        wrap_attribute(module, name, wrap)
        if original is not None and getattr(package, name, None) is original:  # loaded before recording began
            setattr(package, name, getattr(module, name))
    work = getattr(module, "Work", None)
    if work is not None:
        wrap_attribute(work, "wait", wrap_wait)
        for name in ("get_future", "is_completed", "synchronize", "block_current_stream"):
            wrap_attribute(work, name, wrap_other_way_to_wait)


RANK_MESSAGES = Interceptor("rank-messages", "torch.distributed.distributed_c10d", watch_rank_messages)

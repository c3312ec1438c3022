"""What ranks tell each other: Python objects, messages from whoever comes first, collectives that are waited for later.

Python objects are pickled into tensors of bytes. The path of a temporary folder, a time or the name of a run would
count as a difference there, though nothing is computed from it; what is computed from an object is compared as always.
So the operators that carry objects are not recorded.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from typing import Any

from samerun.record.trace import format as f
from samerun.record.watching import collectives, stack_frames, thread_state
from samerun.record.watching.interceptor import Interceptor, wrap_attribute
from samerun.record.watching.recorder import Recorder

_OF_OBJECTS = (
    "all_gather_object", "gather_object", "broadcast_object_list", "scatter_object_list", "send_object_list",
    "recv_object_list",
)  # fmt: skip
OBJECTS = -1
"""In place of a tag, for objects sent to one rank."""
ANY_SOURCE = "torch.distributed.recv"
"""Name of the event that a message came from a rank which the program did not name."""
STORE = "torch.distributed.Store."
"""What the names of events begin with where a store answers by which rank asked first."""
REST_SECONDS = 0.05
"""How long the threads of a process group may finish before it is destroyed."""
_OF_STORES = ("add", "compare_set", "queue_pop")


def watch_rank_messages(recorder: Recorder, module: Any) -> None:
    """Leave out pickled objects; record from which rank a message came; learn when a collective was waited for."""

    def wrap_collective(original: Any) -> Any:
        arguments = inspect.signature(original)

        def object_collective(*args: Any, **kwargs: Any) -> Any:
            recorder.thread.inside_samerun += 1
            try:
                result = original(*args, **kwargs)
            finally:
                recorder.thread.inside_samerun -= 1
            given = arguments.bind(*args, **kwargs).arguments
            record_or_stop_recorder(recorder, record_ranks_of_object_collective, original.__name__, given, result)
            return result

        return object_collective

    def wrap_recv(original: Any) -> Any:
        arguments = inspect.signature(original)

        def recv(*args: Any, **kwargs: Any) -> Any:
            source = original(*args, **kwargs)
            given = arguments.bind(*args, **kwargs).arguments
            if given.get("src") is None and given.get("group_src") is None:
                recorder.emit_host_event(f.COMPLETION, ANY_SOURCE, value=str(source).encode(), only_at_user_code=True)
                record_or_stop_recorder(recorder, record_message_from, given, source)
            return source

        return recv

    def wrap_store(original: Any) -> Any:
        def call(self: Any, *args: Any, **kwargs: Any) -> Any:
            value = original(self, *args, **kwargs)
            if stack_frames.is_called_by_user():
                recorder.emit_host_event(f.COMPLETION, STORE + original.__name__, value=repr(value).encode())
            return value

        return call

    def wrap_wait(original: Any) -> Any:
        def wait(self: Any, *args: Any, **kwargs: Any) -> Any:
            if any(self is work for work in collectives.waited_early):
                return True
            result = original(self, *args, **kwargs)
            recorder.note_collective_complete(recorder.take_collective_writes(self))
            return result

        return wait

    def wrap_other_way_to_wait(original: Any) -> Any:
        def look(self: Any, *args: Any, **kwargs: Any) -> Any:
            recorder.take_collective_writes(self)
            return original(self, *args, **kwargs)

        return look

    def wrap_init(original: Any) -> Any:
        def init_process_group(*args: Any, **kwargs: Any) -> None:
            original(*args, **kwargs)
            recorder.emit_host_event(f.FACT, f.RANK_OF_PROCESS, aux=str(module.get_rank()))

        return init_process_group

    def wrap_destroy(original: Any) -> Any:
        def destroy_process_group(*args: Any, **kwargs: Any) -> None:
            # gloo's thread needs the interpreter's lock to let go of the last collective. torch waits for this thread
            # when a freed model frees its group, and keeps that lock: without a rest, programs hang there now and then.
            thread_state.unwatched_sleep(REST_SECONDS)
            original(*args, **kwargs)

        return destroy_process_group

    package = sys.modules.get("torch.distributed")
    wrapping = [*((name, wrap_collective) for name in _OF_OBJECTS), ("recv", wrap_recv)]
    for name, wrap in (*wrapping, ("init_process_group", wrap_init), ("destroy_process_group", wrap_destroy)):
        original = getattr(module, name, None)
        wrap_attribute(module, name, wrap)
        if original is not None and getattr(package, name, None) is original:  # loaded before recording began
            setattr(package, name, getattr(module, name))
    store = getattr(module, "Store", None)
    for name in _OF_STORES if store is not None else ():
        wrap_attribute(store, name, wrap_store)
    work = getattr(module, "Work", None)
    if work is not None:
        wrap_attribute(work, "wait", wrap_wait)
        for name in ("is_completed", "synchronize", "block_current_stream"):
            wrap_attribute(work, name, wrap_other_way_to_wait)


def record_or_stop_recorder(recorder: Recorder, record: Callable[..., None], *values: Any) -> None:
    """Call `record` where operators are recorded. The program goes on whatever it does."""
    if recorder.recording and not (recorder.thread.inside_samerun or recorder.stopped):
        try:
            record(recorder, *values)
        except Exception as error:
            recorder.stop(f"samerun could not tell what ranks exchange: {error!r}")


def record_ranks_of_object_collective(
    recorder: Recorder, name: str, arguments_by_name: dict[str, Any], source_global_rank: Any
) -> None:
    """Record which ranks exchanged objects. `source_global_rank`: from whom, for a message."""
    group = find_group(arguments_by_name)
    if name == "recv_object_list":
        record_message_from(recorder, arguments_by_name, source_global_rank)
    elif group is not None and name == "send_object_list":
        peer = arguments_by_name.get("group_dst")
        peer = global_to_group_rank(group, arguments_by_name["dst"]) if peer is None else peer
        collectives.emit_message(recorder, f.SENDS, group, peer, OBJECTS)
    elif group is not None:
        collectives.emit_collective(recorder, group)


def record_message_from(recorder: Recorder, arguments_by_name: dict[str, Any], source_global_rank: int) -> None:
    """Record a message that has come from a rank, by its number in the program."""
    group = find_group(arguments_by_name)
    if group is not None and source_global_rank >= 0:
        tag = arguments_by_name.get("tag", 0) if "tensor" in arguments_by_name else OBJECTS
        collectives.emit_message(recorder, f.RECEIVES, group, global_to_group_rank(group, source_global_rank), tag)


def find_group(arguments_by_name: dict[str, Any]) -> Any:
    """The process group of a call; None on a rank that is not in it."""
    distributed: Any = sys.modules["torch.distributed"]
    group = arguments_by_name.get("group") or distributed.group.WORLD
    return group if isinstance(group, distributed.ProcessGroup) else None


def global_to_group_rank(group: Any, global_rank: int) -> int:
    """The number in a group of a rank of the program."""
    distributed: Any = sys.modules["torch.distributed"]
    return int(distributed.get_group_rank(group, global_rank))


RANK_MESSAGES = Interceptor("rank-messages", "torch.distributed.distributed_c10d", watch_rank_messages)

"""What finishes first: results taken from queues and pools in the order in which they come."""

from __future__ import annotations

from typing import Any

from samerun.record import format as f
from samerun.record.interceptor import Interceptor, replace
from samerun.record.recorder import Recorder
from samerun.record.trees import tree_digest


def install_queue(recorder: Recorder, queue: Any) -> None:
    """`queue.Queue.get` called by the program itself."""

    def getting(original: Any) -> Any:
        def get(self: Any, block: bool = True, timeout: float | None = None) -> Any:
            item = original(self, block, timeout)
            if not recorder.thread.inside and not recorder.stopped:
                note(recorder, "queue.get", item)
            return item

        return get

    replace(queue.Queue, "get", getting)


def install_futures(recorder: Recorder, futures: Any) -> None:
    """`concurrent.futures.as_completed`: the positions, in the order of completion."""

    def completing(original: Any) -> Any:
        def as_completed(fs: Any, timeout: float | None = None) -> Any:
            given = list(fs)
            at = {id(future): number for number, future in enumerate(given)}
            for future in original(given, timeout):
                recorder.host(f.COMPLETION, "as_completed", value=str(at.get(id(future))).encode(), user_only=True)
                yield future

        return as_completed

    replace(futures, "as_completed", completing)


def note(recorder: Recorder, name: str, item: Any) -> None:
    import sys

    torch = sys.modules.get("torch")
    if torch is None or not hasattr(torch, "Tensor"):
        return
    recorder.thread.inside += 1
    try:
        value = tree_digest(item, torch.Tensor)
    except Exception:
        value = b"\0" * 16
    finally:
        recorder.thread.inside -= 1
    recorder.host(f.COMPLETION, name, outputs=value, user_only=True)


INTERCEPTOR = Interceptor("completion-queue", "queue", install_queue)
IN_FUTURES = Interceptor("completion-futures", "concurrent.futures", install_futures)

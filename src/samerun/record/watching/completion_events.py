"""Events that say what was done first, and a set whose order does not."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any

from samerun.record.digests.state_digests import digest_tree
from samerun.record.trace import format as f
from samerun.record.watching import stack_frames
from samerun.record.watching.recorder import Recorder


class SortedSet(set[Any]):
    """A set that is iterated in the order of a key."""

    def __init__(self, items: Any, order: Any) -> None:
        super().__init__(items)
        self.order = order

    def __iter__(self) -> Any:
        return iter(sorted(super().__iter__(), key=self.order))


def record_done_tasks(recorder: Recorder, event_name: str, task_numbers: Iterable[int]) -> None:
    """Record which tasks are done, in the order in which the set of them is iterated."""
    recorder.emit_host_event(
        f.COMPLETION, event_name, value=",".join(map(str, task_numbers)).encode(), only_at_user_code=True
    )


def record_completed_item_digest(recorder: Recorder, event_name: str, item: Any) -> None:
    """Record a result that was taken, by its value."""
    recorder.thread.inside_samerun += 1
    try:
        torch = sys.modules.get("torch")
        value = digest_tree(item, torch.Tensor if torch is not None and hasattr(torch, "Tensor") else NoTensor)
    except Exception:
        value = b"\0" * 16
    finally:
        recorder.thread.inside_samerun -= 1
    recorder.emit_host_event(f.COMPLETION, event_name, outputs=value, only_at_user_code=True)


class NoTensor:
    """Stands for `torch.Tensor` while torch is not loaded."""


def make_recording_callback(recorder: Recorder, event_name: str, number: int, callback: Any) -> Any:
    """The callback of the task `number`, whose calls are recorded at the user's line that hands it over."""
    user_line = stack_frames.find_user_line()

    def call(*args: Any) -> Any:
        if user_line.line:
            recorder.emit_host_event(f.COMPLETION, event_name, value=str(number).encode(), user_line=user_line)
        return callback(*args)

    return call

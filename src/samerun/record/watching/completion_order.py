"""What interceptors of queues, pools and tasks share: recording what finishes first, and taking it in a fixed order."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterable
from typing import Any
from weakref import WeakKeyDictionary

from samerun.record import pins
from samerun.record.digests.trees import digest_tree
from samerun.record.trace import format as f
from samerun.record.watching.recorder import Recorder


class ObjectNumbers:
    """Numbers objects in the order in which they are first asked about; -1 for what cannot be referenced weakly."""

    def __init__(self) -> None:
        self.known: WeakKeyDictionary[Any, int] = WeakKeyDictionary()
        self.next = itertools.count()

    def assign_number(self, item: Any) -> int:
        try:
            number = self.known.get(item)
            if number is None:
                number = self.known[item] = next(self.next)
        except TypeError:
            return -1
        return number


class SortedSet(set[Any]):
    """A set that is iterated in the order of a key."""

    def __init__(self, items: Any, order: Any) -> None:
        super().__init__(items)
        self.order = order

    def __iter__(self) -> Any:
        return iter(sorted(super().__iter__(), key=self.order))


def takes_results_in_submission_order(recorder: Recorder) -> bool:
    """True if a pin asks that results are taken in the order in which the tasks were submitted."""
    return not {pins.SERIAL, pins.IN_ORDER}.isdisjoint(recorder.config.pins)


def record_done_tasks(recorder: Recorder, event_name: str, task_numbers: Iterable[int]) -> None:
    """Record which tasks are done, in the order in which the set of them is iterated."""
    recorder.emit_host_event(f.COMPLETION, event_name, value=",".join(map(str, task_numbers)).encode(), user_only=True)


def record_completed_item(recorder: Recorder, event_name: str, item: Any) -> None:
    """Record a result that was taken, by its value."""
    recorder.thread.inside_samerun += 1
    try:
        torch = sys.modules.get("torch")
        value = digest_tree(item, torch.Tensor if torch is not None and hasattr(torch, "Tensor") else NoTensor)
    except Exception:
        value = b"\0" * 16
    finally:
        recorder.thread.inside_samerun -= 1
    recorder.emit_host_event(f.COMPLETION, event_name, outputs=value, user_only=True)


class NoTensor:
    """Stands for `torch.Tensor` while torch is not loaded."""

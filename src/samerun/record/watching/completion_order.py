"""What interceptors of queues, pools and tasks share: events of what finishes first, and taking it in order."""

from __future__ import annotations

import itertools
import sys
from typing import Any
from weakref import WeakKeyDictionary

from samerun.record import pins
from samerun.record.digests.trees import tree_digest
from samerun.record.trace import format as f
from samerun.record.watching.recorder import Recorder


class Numbers:
    """Numbers objects in the order in which they are first asked about."""

    def __init__(self) -> None:
        self.known: WeakKeyDictionary[Any, int] = WeakKeyDictionary()
        self.next = itertools.count()

    def of(self, it: Any) -> int:
        try:
            number = self.known.get(it)
            if number is None:
                number = self.known[it] = next(self.next)
        except TypeError:  # nothing that can be waited for
            return -1
        return number


class InTurn(set[Any]):
    """A set that is gone through in an order."""

    def __init__(self, items: Any, order: Any) -> None:
        super().__init__(items)
        self.order = order

    def __iter__(self) -> Any:
        return iter(sorted(super().__iter__(), key=self.order))


def takes_in_order(recorder: Recorder) -> bool:
    return not {pins.SERIAL, pins.IN_ORDER}.isdisjoint(recorder.config.pins)


def note_done(recorder: Recorder, name: str, numbers: Any) -> None:
    """Which are done, in the order in which a set of them is gone through."""
    recorder.emit_host_event(f.COMPLETION, name, value=",".join(map(str, numbers)).encode(), user_only=True)


def note(recorder: Recorder, name: str, item: Any) -> None:
    recorder.thread.inside_samerun += 1
    try:
        torch = sys.modules.get("torch")
        value = tree_digest(item, torch.Tensor if torch is not None and hasattr(torch, "Tensor") else NoTensor)
    except Exception:
        value = b"\0" * 16
    finally:
        recorder.thread.inside_samerun -= 1
    recorder.emit_host_event(f.COMPLETION, name, outputs=value, user_only=True)


class NoTensor:
    """Stands for `torch.Tensor` while torch is not loaded."""

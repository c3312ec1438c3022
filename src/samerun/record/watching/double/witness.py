"""Does memory that was shared change while this thread is inside of an operator? Then another thread wrote it."""

from __future__ import annotations

import threading
from typing import Any

import torch

from samerun.record.digests import digest as d
from samerun.record.watching.double.copies import raw
from samerun.record.watching.double.looks import Known

MOST_BYTES = 1 << 20
MOST = 8
"""So much memory is watched, the one that was shared last."""

Seen = list[tuple[Known, Any, bytes]]


class Witness:
    def __init__(self) -> None:
        self._shared: dict[int, Known] = {}

    def watch(self, known: Known) -> None:
        """Memory that others can write from now on."""
        self._shared.pop(id(known), None)
        self._shared[id(known)] = known
        for key in [key for key, each in list(self._shared.items()) if each.weak.expired()]:
            self._shared.pop(key, None)
        while len(self._shared) > MOST:
            self._shared.pop(next(iter(self._shared)), None)

    def clear(self) -> None:
        self._shared.clear()

    def begin(self) -> Seen:
        """What shared memory holds before an operator. Nothing without other threads."""
        if not self._shared or threading.active_count() < 2:
            return []
        held = ((known, value_of(known)) for known in list(self._shared.values()))
        return [(known, known.write, value) for known, value in held if value is not None]

    def end(self, seen: Seen) -> None:
        """After the operator: what has changed, and not by an operator, was written by another thread."""
        for known, write, value in seen:
            if known.write is write and value_of(known) not in (value, None):
                known.foreign = True


def value_of(known: Known) -> bytes | None:
    storage = torch.UntypedStorage._new_with_weak_ptr(known.weak.cdata)
    if storage is None or not 0 < storage.nbytes() <= MOST_BYTES or storage.device.type != "cpu":
        return None
    return d.digest(raw(storage, 0, storage.nbytes()))

"""Traces put together byte by byte, for tests of what reads the traces of a stranger."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from samerun.record.trace import format as f
from samerun.record.trace.reader import EVENT_DTYPE

Array = np.ndarray[Any, Any]
STRINGS = ("train.py", "aten.a", "aten.b")
PLACES = ((1, 1, 0), (1, 2, 0))


def block(tag: bytes, count: int, payload: bytes) -> bytes:
    return f.BLOCK.pack(tag, count, len(payload)) + payload


def head(role: bytes = b"main", status: bytes = b"") -> bytes:
    start = f.MAGIC + struct.pack("<II", f.VERSION, len(role)) + role.ljust(f.ROLE_BYTES, b"\0")[: f.ROLE_BYTES]
    return start + struct.pack("<Q", 1) + status.ljust(f.STATUS_BYTES, b"\0")[: f.STATUS_BYTES]


def strings(texts: Sequence[str | bytes]) -> bytes:
    raw = [text if isinstance(text, bytes) else text.encode("utf-8", "surrogateescape") for text in texts]
    return block(f.STRINGS, len(raw), b"".join(struct.pack("<I", len(each)) + each for each in raw))


def places(rows: Sequence[tuple[int, int, int]]) -> bytes:
    return block(f.LOCATIONS, len(rows), b"".join(f.LOCATION.pack(*each) for each in rows))


def write(
    path: Path,
    events: Array,
    texts: Sequence[str | bytes] = STRINGS,
    rows: Sequence[tuple[int, int, int]] = PLACES,
    role: bytes = b"main",
    status: bytes = b"",
) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    content = head(role, status) + strings(texts) + places(rows)
    path.write_bytes(content + block(f.EVENTS, len(events), events.tobytes()) + block(f.END, len(events), b""))


def operators(count: int) -> Array:
    events = np.zeros(count, EVENT_DTYPE)
    events["kind"], events["name"], events["location"] = f.OPERATOR, 2, 1
    events["inputs"], events["out0"] = np.arange(count), np.arange(count) + 1
    return events


def with_insertions(events: Array, every: int, kind: int = f.OPERATOR) -> Array:
    """One event more after every few."""
    at = np.arange(every, len(events), every)
    more = np.zeros(len(at), EVENT_DTYPE)
    more["kind"], more["name"], more["location"], more["inputs"] = kind, 3, 2, np.arange(len(at)) + 10**9
    return np.insert(events, at, more)


def starting_threads(count: int, first_name: int) -> Array:
    events = np.zeros(count, EVENT_DTYPE)
    events["kind"], events["name"], events["inputs"] = f.THREAD, np.arange(count) + first_name, np.arange(count) + 1
    return events

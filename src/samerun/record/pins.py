"""Give one source fixed values, to see whether the difference between two runs comes from it.

A pin is named in `WatchConfig.pins`. The values are the same in every run and every process: a counter
is hashed together with the name of the source.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable

from xxhash import xxh3_64_intdigest, xxh3_128_digest

PYTHON = "python"
"""Python's global generator, and `random.seed()` without a seed."""
PYTHON_GENERATOR = "python-generator"
"""Instances of `random.Random` made without a seed."""
NUMPY_GLOBAL = "numpy-global"
NUMPY_GENERATOR = "numpy-generator"
TORCH = "torch"
TORCH_GENERATOR = "torch-generator"
ENTROPY = "entropy"
NATIVE_ENTROPY = "native-entropy"
"""Random bytes that native code draws from the system are the same in every run."""
CLOCK = "clock"
THREADS = "threads"
DETERMINISTIC = "deterministic"
SERIAL = "serial"
"""Threads and tasks run to their end when they are started; what finishes out of order is taken in order."""
THREAD_STREAMS = "thread-streams"
"""Threads other than the main one draw from a state of torch's generator of their own."""
IN_ORDER = "in-order"
"""What finishes out of order is taken in order, of tasks and workers that run at the same time as ever."""
EXTRA = "extra"
"""At one line only: draws and seeds there leave the generators as they were."""
FOLDER = "folder"
"""Each run gets a copy of the working directory as it now is."""
ADDRESSES = "addresses"
"""The system places memory at the same addresses in every run."""
EAGER = "eager"
"""Nothing is compiled."""
MEMORY = "memory"
"""Fresh memory holds zeros."""
STAT = "stat"
"""Files carry no times."""

SEPARABLE = (NUMPY_GENERATOR, PYTHON_GENERATOR, TORCH_GENERATOR, ENTROPY, CLOCK)
"""Pins that can be limited to one line: `name@file:line`."""

EPOCH_START = 1_700_000_000.0
TICK = 0.0005
"""So many seconds pass from one reading of a clock that is held still to the next, where nothing else is asked for."""
SLOWEST_TICK = 1.0


_value = 0
"""Which of their fixed values the pinned sources have in this process."""


def choose_value(value: int) -> None:
    """Hold every pinned source at another value: what follows it is what the program makes of the source."""
    global _value, EPOCH_START
    _value = value
    EPOCH_START += value * 12_345_678.0


def clock_reading(ticks: int, tick: float) -> float:
    """What a pinned clock shows at its so-many-th reading. Held at another value it also ticks unevenly: what compares
    two spans of time comes out the same however fast a clock goes."""
    uneven = fixed_seed(f"clock {ticks}", 16) / 65536 - 0.5 if _value else 0.0
    return EPOCH_START + (ticks + uneven) * tick * (1 + 0.3 * _value)


def byte_stream(name: str) -> Callable[[int], bytes]:
    """A function of a number of bytes: the next ones of a fixed stream."""
    counter = itertools.count()

    def next_bytes(size: int) -> bytes:
        out = b""
        while len(out) < size:
            out += xxh3_128_digest(f"{_named(name)}.{next(counter)}".encode())
        return out[:size]

    return next_bytes


def fixed_seed(name: str, bits: int = 32) -> int:
    """A seed that depends on the name of its source alone."""
    return xxh3_64_intdigest(f"samerun pin {_named(name)}".encode()) >> (64 - bits)


def _named(name: str) -> str:
    return f"{name} {_value}" if _value else name

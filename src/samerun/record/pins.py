"""Pins: give one source of nondeterminism fixed values, to test whether a difference between two runs comes from it.

`WatchConfig.pins` names the pins of a run. A pinned source has the same values in every run and every process: they
are hashes of a counter and the name of the source.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable

from xxhash import xxh3_64_intdigest, xxh3_128_digest

PYTHON = "python"
"""Python's global generator, and `random.seed()` without an argument."""
PYTHON_GENERATOR = "python-generator"
"""Instances of `random.Random` created without a seed."""
NUMPY_GLOBAL = "numpy-global"
NUMPY_GENERATOR = "numpy-generator"
TORCH = "torch"
TORCH_GENERATOR = "torch-generator"
ENTROPY = "entropy"
NATIVE_ENTROPY = "native-entropy"
"""Native code gets the same random bytes from the system in every run."""
CLOCK = "clock"
MACHINE = "machine"
"""What the machine is doing is the same in every run: free memory, load, space on disks."""
THREADS = "threads"
DETERMINISTIC = "deterministic"
SERIAL = "serial"
"""Threads and tasks run to completion when they are started, and results are taken in order."""
THREAD_STREAMS = "thread-streams"
"""Each thread but the main one draws from generators of its own, in place of the global ones."""
WAITED = "waited"
"""Each asynchronous collective is waited for where it is started."""
IN_ORDER = "in-order"
"""Results are taken in order, while tasks and workers still run concurrently."""
EXTRA = "extra"
"""At one line only: draws and seeds there do not change the state of the generators."""
FOLDER = "folder"
"""Each run gets a copy of the working directory in its present state."""
ADDRESSES = "addresses"
"""Memory lies at the same addresses in every run."""
EAGER = "eager"
"""torch.compile does nothing."""
MEMORY = "memory"
"""Fresh memory holds zeros."""
SEED = "seed"
"""At one line only: whatever number a generator is seeded with there, it gets a fixed one."""
FREE = "free"
"""At one line only: draws from a global generator of Python's or NumPy's get other numbers in every run there. The
generator goes on as it would, so that draws at other lines stay as they are."""
STAT = "stat"
"""File timestamps are constant."""

SEPARABLE = (NUMPY_GENERATOR, PYTHON_GENERATOR, TORCH_GENERATOR, ENTROPY, CLOCK, MACHINE)
"""Pins that can be restricted to one line: `name@file:line`."""

PINNED_CLOCK_START = 1_700_000_000.0
CLOCK_TICK_SECONDS = 0.0005
"""A pinned clock advances by this much at each reading, by default."""
SLOWEST_CLOCK_TICK_SECONDS = 1.0

_value = 0
"""Which of their fixed values the pinned sources have in this process: see `set_pin_variant`."""


def set_pin_variant(variant: int) -> None:
    """Pin every source to another of its fixed values.

    This is the control of a pinning experiment: a difference that follows the value of the pin is caused by the
    source, and did not disappear by chance.
    """
    global _value, PINNED_CLOCK_START
    _value = variant
    PINNED_CLOCK_START += variant * 12_345_678.0


def pinned_clock_reading(reading_count: int, tick_seconds: float) -> float:
    """The time in seconds that a pinned clock shows after `reading_count` readings.

    Under another pin value the ticks are also uneven: a program that compares two spans of time gets the same result
    from every even clock, however fast it goes.
    """
    uneven = pinned_seed(f"clock {reading_count}", 16) / 65536 - 0.5 if _value else 0.0
    return PINNED_CLOCK_START + (reading_count + uneven) * tick_seconds * (1 + 0.3 * _value)


def make_pinned_byte_reader(source_name: str) -> Callable[[int], bytes]:
    """A function that returns the next `size` bytes of the fixed stream of a source."""
    counter = itertools.count()

    def next_bytes(size: int) -> bytes:
        out = b""
        while len(out) < size:
            out += xxh3_128_digest(f"{_source_name_with_variant_number(source_name)}.{next(counter)}".encode())
        return out[:size]

    return next_bytes


def pinned_seed(source_name: str, bits: int = 32) -> int:
    """A seed that depends only on the name of the source and the pin value."""
    return xxh3_64_intdigest(f"samerun pin {_source_name_with_variant_number(source_name)}".encode()) >> (64 - bits)


def _source_name_with_variant_number(source_name: str) -> str:
    return f"{source_name} {_value}" if _value else source_name

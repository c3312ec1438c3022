"""Random bytes that native code draws from the system: counted, or pinned, by a preloaded C library.

No Python function is called there, so nothing else of samerun sees them. Linux, where the library was built
(`native/entropy.c`).
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from samerun.base.native import find_built_library
from samerun.record import pins

PRELOAD = "LD_PRELOAD"
STREAM_BYTES = 1 << 20


def find_preload_library() -> Path | None:
    """The library to preload; None if it was not built, or its path has characters that LD_PRELOAD cannot hold."""
    path = find_built_library(__file__, "_entropy") if sys.platform == "linux" else None
    return None if path is None or set(" :") & set(str(path)) else path


def make_preload_environment(
    library: Path,
    environment: Mapping[str, str],
    stream_file: Path | None,
    pin_variant: int = 0,
    counter_file: Path | None = None,
) -> dict[str, str]:
    """Environment variables for a process in which draws are counted and, with `stream_file`, pinned.

    `stream_file`: the file that is opened in place of the random devices.
    `pin_variant`: the pin value; another one gives other bytes.
    `counter_file`: where the process and the programs that it starts count together; see `create_zeroed_counter_file`.
    """
    others = environment.get(PRELOAD, os.environ.get(PRELOAD, ""))
    variables = {PRELOAD: f"{library}:{others}" if others else str(library)}
    if stream_file is not None:
        variables |= {"SAMERUN_ENTROPY": "fixed", "SAMERUN_ENTROPY_FILE": str(stream_file)}
        variables |= {"SAMERUN_ENTROPY_VALUE": str(pin_variant)} if pin_variant else {}
    if counter_file is not None:
        variables["SAMERUN_ENTROPY_COUNTER"] = str(counter_file)
    return variables


def create_zeroed_counter_file(path: Path) -> None:
    path.write_bytes(bytes(8))


def write_pinned_random_device_file(path: Path, pin_variant: int = 0) -> None:
    """Write what the random devices give when pinned: the same in every run with this pin value."""
    path.write_bytes(pins.make_pinned_byte_reader(f"device{pin_variant}" if pin_variant else "device")(STREAM_BYTES))


def make_native_draw_counter() -> Callable[[], int] | None:
    """A function that counts the draws so far: of this process, or of all that share its counter file.

    None if the library is not preloaded.
    """
    if "_entropy" not in os.environ.get(PRELOAD, ""):
        return None
    try:
        drawn = ctypes.CDLL(None).samerun_entropy_draw_count
    except (OSError, AttributeError):
        return None
    drawn.restype = ctypes.c_uint64
    return lambda: int(drawn())

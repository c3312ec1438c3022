"""With the pin `serial`, whoever starts a thread, a task or a process waits for its end, as long as it is at work."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any

from samerun.record.trace import format as f
from samerun.record.watching.recorder import Recorder

SERIAL_SECONDS = 3.0
"""So long it is waited for one that does nothing: it waits for others, and must be allowed to run beside them."""
MOST_SERIAL_SECONDS = 20.0
"""So long it is waited for one that is at work: on a busy machine little may take long."""
SLICE_SECONDS = 0.25
WORKING_SHARE = 0.03
"""A process that computes gets at least so much of a processor; one that looks every few milliseconds uses less."""

# Bound at import, before the module's own are watched.
_monotonic, _process_time = time.monotonic, time.process_time
_most_seconds = MOST_SERIAL_SECONDS


def wait_while_working(
    wait: Callable[[float], object], is_done: Callable[[], bool], read_cpu_seconds: Callable[[], float] = _process_time
) -> bool:
    """Whether it is done, having waited with `wait(seconds)` for it, or until nothing was computed for some seconds."""
    global _most_seconds
    begin = _monotonic()
    idle = 0.0
    while idle < SERIAL_SECONDS and _monotonic() - begin < _most_seconds:
        before, cpu = _monotonic(), read_cpu_seconds()
        wait(SLICE_SECONDS)
        if is_done():
            return True
        waited = _monotonic() - before
        if read_cpu_seconds() - cpu < WORKING_SHARE * waited:
            idle += waited
    if idle < SERIAL_SECONDS:  # it works as long as the program runs, and others of its kind may
        _most_seconds = SERIAL_SECONDS
    return False


def emit_not_serial(recorder: Recorder) -> None:
    """Record that what was started goes on beside the program: it works as long as that runs, or waits for it.

    What the pin shows is then no experiment with it.
    """
    recorder.emit_host_event(f.FACT, f.NOT_SERIAL, only_at_user_code=True, thin_repeats=True)


def read_cpu_seconds_of_process(pid: int) -> float:
    """What another process has computed; 0 where the system does not say."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            fields = file.read().rpartition(") ")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError):
        return 0.0


def wait_for_program(process: Any, seconds: float) -> None:
    """Wait for a `Popen`, no longer than some seconds."""
    try:
        process.wait(seconds)
    except Exception:  # it still runs
        pass

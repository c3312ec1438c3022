"""The clocks of `time`, `datetime`, `os.times` and `resource`. They can be shifted (variation) or made to tick by count
(pin).

Where only some lines get such a clock, all others read one that starts at the same moment and runs at the usual speed,
because programs compare what they read at one line with what they read at another: a loop that runs for some seconds.
"""

from __future__ import annotations

import contextlib
import struct
import sys
import warnings
from collections.abc import Callable
from typing import Any

from samerun.record import pins
from samerun.record.trace import format as f
from samerun.record.watching.interceptor import Interceptor, wrap_attribute, wrap_builtin_method
from samerun.record.watching.recorder import NOTHING, Recorder

CLOCKS = ("time", "monotonic", "perf_counter", "process_time", "thread_time")


class Clock:
    """What every clock of the process shows to the program."""

    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder
        self.shift = recorder.config.clock_shift
        self.pinned = recorder.has_pin_anywhere(pins.CLOCK)
        self.tick = recorder.config.clock_tick
        self.ticks = 0
        self.is_changed = bool(self.pinned or self.shift)
        self.start_readings: dict[str, float] = {}
        """What each clock showed when watching started, in whole seconds."""
        self.real_time: Callable[[], float] = lambda: 0.0

    def pin_or_shift_reading(self, reading: float, clock_name: str = "time") -> float:
        """The reading that the clock `clock_name` shows to the program instead of the true one."""
        if self.pinned:
            if self.recorder.is_pinned_here(pins.CLOCK):
                self.ticks += 1
                return pins.pinned_clock_reading(self.ticks, self.tick)
            reading += pins.PINNED_CLOCK_START - self.start_readings.get(clock_name, 0.0)
        if self.shift and not self.recorder.current_line_is_selected_for_variation("clock"):
            return reading
        return reading + self.shift

    def current_time_shown_to_program(self) -> float:
        """What `time.time()` shows to the program now."""
        real = self.real_time()
        return self.pin_or_shift_reading(real) if self.is_changed and not self.recorder.thread.inside_samerun else real

    def record_reading(self, function: str, seconds: float) -> None:
        bits = struct.pack("<d", seconds) + NOTHING[:8]
        self.recorder.emit_host_event(f.CLOCK, function, outputs=bits, thin_repeats=True, only_at_user_code=True)


def intercept_time_clocks(recorder: Recorder, time: Any) -> None:
    clock = Clock(recorder)
    clock.real_time = time.time
    clock.start_readings = {name: float(int(getattr(time, name)())) for name in CLOCKS if hasattr(time, name)}

    def wrap_seconds(name: str) -> Any:
        def wrap(original: Any) -> Any:
            def reading() -> float:
                value: float = original()
                if clock.is_changed and not recorder.thread.inside_samerun:
                    value = clock.pin_or_shift_reading(value, name)
                clock.record_reading(f"time.{name}", value)
                return value

            return reading

        return wrap

    def wrap_nanoseconds(name: str) -> Any:
        def wrap(original: Any) -> Any:
            def reading() -> int:
                value: int = original()
                if clock.is_changed and not recorder.thread.inside_samerun:
                    moved, ticks = value / 1e9, clock.ticks
                    now = clock.pin_or_shift_reading(moved, name)
                    value = int(now * 1e9) if clock.ticks != ticks else value + round(now - moved) * 10**9
                clock.record_reading(f"time.{name}_ns", float(value))
                return value

            return reading

        return wrap

    for name in CLOCKS:
        wrap_attribute(time, name, wrap_seconds(name))
        wrap_attribute(time, f"{name}_ns", wrap_nanoseconds(name))

    def wrap_conversion(original: Any) -> Any:
        """`localtime()` and the like without an argument mean the current time."""

        def converting(*args: Any) -> Any:
            if args not in ((), (None,)):
                return original(*args)
            now = clock.current_time_shown_to_program()
            clock.record_reading(f"time.{original.__name__}", now)
            return original(now)

        return converting

    for name in ("localtime", "gmtime", "ctime"):
        wrap_attribute(time, name, wrap_conversion)

    def wrap_clock_gettime(original: Any) -> Any:
        def reading(clock_id: int) -> Any:
            value = original(clock_id)
            scale = 10**9 if isinstance(value, int) else 1
            if clock.is_changed and not recorder.thread.inside_samerun:
                value = type(value)(clock.pin_or_shift_reading(value / scale, f"clock {clock_id}") * scale)
            clock.record_reading(f"time.{original.__name__}", float(value))
            return value

        return reading

    for clock_id in {number for name, number in vars(time).items() if name.startswith("CLOCK_")}:
        with contextlib.suppress(OSError):  # not every kernel has all of them
            clock.start_readings[f"clock {clock_id}"] = float(int(time.clock_gettime(clock_id)))
    for name in ("clock_gettime", "clock_gettime_ns"):
        wrap_attribute(time, name, wrap_clock_gettime)

    def wrap_strftime(original: Any) -> Any:
        def strftime(format: str, *args: Any) -> str:
            return str(original(format, *args) if args else original(format, time.localtime()))

        return strftime

    wrap_attribute(time, "strftime", wrap_strftime)
    recorder.clock = clock


CLOCK = Interceptor("clock", "time", intercept_time_clocks)


def pin_and_intercept_os_times(recorder: Recorder, os: Any) -> None:
    """`os.times`: under a pin all time is the user's."""
    recorder.clock.start_readings["elapsed"] = float(int(os.times().elapsed))

    def wrap_times(original: Any) -> Any:
        def times() -> Any:
            found = original()
            clock = recorder.clock
            if clock.is_changed and not recorder.thread.inside_samerun:
                spent = clock.pin_or_shift_reading(found.user + found.system, "times")
                real_time = clock.pin_or_shift_reading(found.elapsed, "elapsed")
                found = type(found)((spent, 0.0, found.children_user, found.children_system, real_time))
            clock.record_reading("os.times", found.user + found.system)
            return found

        return times

    wrap_attribute(os, "times", wrap_times)


def intercept_resource_usage(recorder: Recorder, resource: Any) -> None:
    """`resource.getrusage`: of what it tells, the processor time."""

    def wrap_getrusage(original: Any) -> Any:
        def getrusage(who: int) -> Any:
            found = original(who)
            clock = recorder.clock
            if clock.is_changed and not recorder.thread.inside_samerun:
                spent = clock.pin_or_shift_reading(found.ru_utime + found.ru_stime, f"usage {who}")
                found = type(found)((spent, 0.0, *found[2:]))
            clock.record_reading("resource.getrusage", found.ru_utime + found.ru_stime)
            return found

        return getrusage

    wrap_attribute(resource, "getrusage", wrap_getrusage)


PROCESSOR_TIMES = Interceptor("clock-os", "os", pin_and_intercept_os_times)
RESOURCE_USAGE = Interceptor("clock-resource", "resource", intercept_resource_usage)


def intercept_datetime_now(recorder: Recorder, module: Any) -> None:
    clock = recorder.clock
    datetime_type, date_type, utc = module.datetime, module.date, module.timezone.utc
    from_timestamp = vars(datetime_type)["fromtimestamp"]

    def wrap_now(original: Any) -> Any:
        def now(cls: Any, *args: Any, **kwargs: Any) -> Any:
            seconds = clock.current_time_shown_to_program()
            clock.record_reading("datetime.now", seconds)
            if not clock.is_changed:
                return original.__get__(None, cls)(*args, **kwargs)
            return from_timestamp.__get__(None, cls)(seconds, _timezone_argument(*args, **kwargs))

        return now

    def wrap_utcnow(original: Any) -> Any:
        deprecation = _catch_deprecation_message(original.__get__(None, datetime_type))

        def utcnow(cls: Any) -> Any:
            if deprecation:  # issued here, because the original would name a line of this file
                warnings.warn(deprecation, DeprecationWarning, stacklevel=2)
            seconds = clock.current_time_shown_to_program()
            clock.record_reading("datetime.utcnow", seconds)
            now = from_timestamp.__get__(None, datetime_type)(seconds, utc)
            if cls is datetime_type:
                return now.replace(tzinfo=None)
            return cls(now.year, now.month, now.day, now.hour, now.minute, now.second, now.microsecond, None)

        return utcnow

    def wrap_today(original: Any) -> Any:
        def today(cls: Any) -> Any:
            seconds = clock.current_time_shown_to_program()
            clock.record_reading("datetime.today" if issubclass(cls, datetime_type) else "date.today", seconds)
            return cls.fromtimestamp(seconds)

        return today

    wrap_builtin_method(datetime_type, "now", wrap_now)
    wrap_builtin_method(datetime_type, "utcnow", wrap_utcnow)
    wrap_builtin_method(date_type, "today", wrap_today)  # the one that `datetime` inherits


def _timezone_argument(tz: Any = None) -> Any:
    """The argument of `datetime.now`, positional or by keyword."""
    return tz


def _catch_deprecation_message(call: Any) -> str:
    """The deprecation warning that `call` issues in Python 3.12 and later; "" before."""
    if sys.version_info < (3, 12):
        return ""
    with warnings.catch_warnings(record=True) as issued:
        warnings.simplefilter("always")
        call()
    return str(issued[0].message) if issued else ""


CLOCK_DATETIME = Interceptor("clock-datetime", "datetime", intercept_datetime_now)

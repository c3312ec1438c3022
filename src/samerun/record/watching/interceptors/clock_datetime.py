"""`datetime.now()`, `utcnow()` and `today()`: class methods of types written in C, replaced in the types themselves."""

from __future__ import annotations

import sys
import warnings
from typing import Any

from samerun.record.watching.interceptor import Interceptor, replace_method
from samerun.record.watching.recorder import Recorder


def install(recorder: Recorder, module: Any) -> None:
    clock = recorder.clock
    moment, day, utc = module.datetime, module.date, module.timezone.utc
    from_timestamp = vars(moment)["fromtimestamp"]

    def now_of(original: Any) -> Any:
        def now(cls: Any, *args: Any, **kwargs: Any) -> Any:
            seconds = clock.time()
            clock.note("datetime.now", seconds)
            if not clock.changed:
                return original.__get__(None, cls)(*args, **kwargs)
            return from_timestamp.__get__(None, cls)(seconds, zone_of(*args, **kwargs))

        return now

    def utcnow_of(original: Any) -> Any:
        deprecation = _warning_of(original.__get__(None, moment))

        def utcnow(cls: Any) -> Any:
            if deprecation:  # issued here, because the original would name a line of this file
                warnings.warn(deprecation, DeprecationWarning, stacklevel=2)
            seconds = clock.time()
            clock.note("datetime.utcnow", seconds)
            now = from_timestamp.__get__(None, moment)(seconds, utc)
            if cls is moment:
                return now.replace(tzinfo=None)
            return cls(now.year, now.month, now.day, now.hour, now.minute, now.second, now.microsecond, None)

        return utcnow

    def today_of(original: Any) -> Any:
        def today(cls: Any) -> Any:
            seconds = clock.time()
            clock.note("datetime.today" if issubclass(cls, moment) else "date.today", seconds)
            return cls.fromtimestamp(seconds)

        return today

    replace_method(moment, "now", now_of)
    replace_method(moment, "utcnow", utcnow_of)
    replace_method(day, "today", today_of)  # the one that `datetime` inherits


def zone_of(tz: Any = None) -> Any:
    """The argument of `datetime.now`."""
    return tz


def _warning_of(call: Any) -> str:
    """What Python 3.12 and later warn of where `call` is called."""
    if sys.version_info < (3, 12):
        return ""
    with warnings.catch_warnings(record=True) as issued:
        warnings.simplefilter("always")
        call()
    return str(issued[0].message) if issued else ""


INTERCEPTOR = Interceptor("clock-datetime", "datetime", install)

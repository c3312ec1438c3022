"""`datetime.now()`, `utcnow()` and `today()`: methods of C types that cannot be replaced in place.

A subclass stands in for each type; only `type(x) is datetime.datetime` can tell.
"""

from __future__ import annotations

import struct
from typing import Any

from samerun.base.stand_in import pickle_by, stand_in
from samerun.record import format as f
from samerun.record.interceptor import Interceptor
from samerun.record.recorder import NOTHING, Recorder


def install(recorder: Recorder, module: Any) -> None:
    real_datetime, real_date = module.datetime, module.date
    clock, real_time = recorder.clock, recorder.real_time

    def note(name: str, value: float) -> None:
        bits = struct.pack("<d", value) + NOTHING[:8]
        recorder.host(f.CLOCK, name, outputs=bits, thin=True, user_only=True)

    def now_of(cls: Any, name: str, utc: bool, tz: Any = None) -> Any:
        real = real_datetime if cls is made else cls
        seconds = clock.seconds(real_time())
        note(name, seconds)
        if utc:
            naive = real_datetime.fromtimestamp(seconds, module.timezone.utc).replace(tzinfo=None)
            return naive if real is real_datetime else real(*naive.timetuple()[:6], naive.microsecond)
        return real.fromtimestamp(seconds, tz)

    def now(cls: Any, tz: Any = None) -> Any:
        return now_of(cls, "datetime.now", False, tz)

    def today(cls: Any) -> Any:
        return now_of(cls, "datetime.today", False)

    def utcnow(cls: Any) -> Any:
        return now_of(cls, "datetime.utcnow", True)

    def date_today(cls: Any) -> Any:
        seconds = clock.seconds(real_time())
        note("date.today", seconds)
        return (real_date if cls is made_date else cls).fromtimestamp(seconds)

    made = stand_in(real_datetime, {"now": now, "today": today, "utcnow": utcnow})
    made_date = stand_in(real_date, {"today": date_today})
    pickle_by(made, real_datetime)
    pickle_by(made_date, real_date)
    module.datetime, module.date = made, made_date


INTERCEPTOR = Interceptor("clock-datetime", "datetime", install)

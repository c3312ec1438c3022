"""`datetime.now()`, `utcnow()` and `today()`: methods of C types that cannot be replaced in place.

A subclass stands in for each type. It makes objects of the real type, and counts as the real type in
`isinstance`, `==`, dictionaries and pickles; only `type(x) is datetime.datetime` can tell.
"""

from __future__ import annotations

import copyreg
import struct
from typing import Any

from samerun.record import format as f
from samerun.record.interceptor import Interceptor
from samerun.record.recorder import NOTHING, Recorder


def stand_in(plain: Any, methods: dict[str, Any]) -> Any:
    """A subclass of `plain` with other class methods that passes for `plain`."""

    class Kind(type):
        def __instancecheck__(cls, instance: Any) -> bool:
            return isinstance(instance, plain) if cls is made else type.__instancecheck__(cls, instance)

        def __subclasscheck__(cls, kind: type) -> bool:
            return issubclass(kind, plain) if cls is made else type.__subclasscheck__(cls, kind)

        def __eq__(cls, other: object) -> bool:
            return other is cls or (cls is made and other is plain)

        def __hash__(cls) -> int:
            return type.__hash__(plain if cls is made else cls)

    def new(cls: Any, *args: Any, **kwargs: Any) -> Any:
        return plain.__new__(plain if cls is made else cls, *args, **kwargs)

    names: dict[str, Any] = {"__new__": new, "__doc__": plain.__doc__, "__module__": plain.__module__}
    names.update({name: classmethod(method) for name, method in methods.items()})
    made: Any = Kind(plain.__name__, (plain,), names)
    copyreg.pickle(plain, lambda value: (made, value.__reduce_ex__(4)[1]))
    return made


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
    module.datetime, module.date = made, made_date


INTERCEPTOR = Interceptor("clock-datetime", "datetime", install)

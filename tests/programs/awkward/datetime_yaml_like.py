"""Uses the types of `datetime` as types: as keys, in isinstance, as base classes, in pickles."""

import copy
import datetime
import json
import pickle
import time
from datetime import date, datetime as DateTime, timedelta, timezone

import torch


def tensor_of(when):
    return torch.tensor([when.year, when.month, when.day], dtype=torch.float32)


# How YAML and JSON libraries choose a writer: by the exact type.
WRITERS = {
    datetime.datetime: lambda value: "moment:" + value.isoformat(),
    datetime.date: lambda value: "day:" + value.isoformat(),
    datetime.timedelta: lambda value: "span:" + str(value.total_seconds()),
}


class Stamp(datetime.datetime):
    def short(self):
        return self.strftime("%Y%m%d")


class Holiday(date):
    pass


moment = datetime.datetime(2024, 2, 29, 12, 30, tzinfo=timezone.utc)
now, now_utc, today = datetime.datetime.now(), DateTime.now(timezone.utc), date.today()
stamp, stamp_now = Stamp(2024, 2, 29), Stamp.now()

for value in (moment, moment.date(), timedelta(hours=1)):
    print(WRITERS[type(value)](value))
print(type(now) in WRITERS, type(now_utc) in WRITERS, type(today) in WRITERS, type(now - now) in WRITERS)
print(type(now) is datetime.datetime, type(today) is datetime.date, type(moment) is type(now))
print(isinstance(now, datetime.datetime), isinstance(moment, DateTime), isinstance(now, date), isinstance(today, DateTime))
print(issubclass(Stamp, datetime.datetime), isinstance(stamp_now, Stamp), isinstance(Holiday.today(), Holiday))
print(datetime.datetime is DateTime, DateTime.__name__, DateTime.__module__, DateTime.__mro__[1].__name__)
print(now_utc.tzinfo, now.tzinfo, DateTime.now(tz=timezone(timedelta(hours=9))).utcoffset())
print(DateTime.fromtimestamp(0, timezone.utc), DateTime.strptime("2024-03-01", "%Y-%m-%d"), stamp.short())

print(json.dumps({"when": moment, "span": timedelta(1)}, default=lambda value: WRITERS[type(value)](value)))
for value in (moment, now, today, stamp):
    again = pickle.loads(pickle.dumps(value))
    print(again == value, type(again) is type(value), copy.deepcopy(value) == value)
print({moment: 1}[DateTime(2024, 2, 29, 21, 30, tzinfo=timezone(timedelta(hours=9)))], moment < now_utc)

print(time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(0)), type(time.localtime()).__name__, type(time.time()).__name__)
print(len(time.strftime("%Y")), time.time_ns() > 0, time.monotonic() <= time.monotonic(), time.perf_counter() > 0)
print((tensor_of(moment) @ torch.ones(3)).item(), tensor_of(stamp).sum().item())

"""Whatever looks at types and functions closely: nothing is to be told from an unwatched process."""

import collections
import copy
import dataclasses
import datetime
import functools
import inspect
import io
import json
import logging
import os
import pickle
import random
import sqlite3
import time
import typing
import zoneinfo

import numpy as np
import torch

NAMED = {
    "datetime": datetime.datetime, "date": datetime.date, "Generator": torch.Generator, "RandomState": np.random.RandomState,
    "numpy.Generator": np.random.Generator, "Random": random.Random, "SystemRandom": random.SystemRandom,
}
for name, kind in NAMED.items():
    print(name, kind, kind.__class__, kind.__mro__, kind.__module__, kind.__qualname__, kind.__flags__ & ~(1 << 19))  # but for Python's cache
    # NumPy's methods are Cython's functions, which bind and are copied as Python's are; torch.Generator has no __init__.
    print([(key, type(value).__name__.replace("cython_function_or_method", "function")) for key, value in vars(kind).items() if key != "__init__"])
    print(pickle.loads(pickle.dumps(kind)) is kind, copy.deepcopy(kind) is kind)
print(type(datetime.datetime.now()) is datetime.datetime, type(datetime.date.today()) is datetime.date)
print(type(torch.Generator()) is torch.Generator, type(torch.default_generator) is torch.Generator)
print(type(np.random.RandomState(1)) is np.random.RandomState, type(np.random.default_rng(1)) is np.random.Generator)
print(type(np.random.mtrand._rand) is np.random.RandomState, np.random.mtrand.RandomState is np.random.RandomState)


@functools.singledispatch
def tell(value):
    return "something else"


@tell.register
def _(value: datetime.date):
    return "day"


@tell.register
def _(value: datetime.datetime):
    return "moment"


@tell.register(np.random.RandomState)
def _(value):
    return "legacy"


print(tell(datetime.datetime.now()), tell(datetime.date.today()), tell(datetime.datetime(2024, 1, 1)), tell(np.random.RandomState()))


class Exact(datetime.datetime):
    """As pandas' Timestamp: made of other arguments."""

    def __new__(cls, *args, **kwargs):
        assert len(args) in (1, 7, 8), args
        if len(args) == 1:
            return datetime.datetime.__new__(cls, args[0], 1, 1)
        return datetime.datetime.__new__(cls, *args, **kwargs)


class Started(torch.Generator):
    def __init__(self, device="cpu"):
        super().__init__()
        self.manual_seed(5)


class Legacy(np.random.RandomState):
    def __init__(self, seed):
        super().__init__(seed)


print(Exact(2024), type(Exact.now()), type(Exact.now(datetime.timezone.utc)), type(Exact.today()), Exact.mro())
print(Started().initial_seed(), type(Started()), Legacy(3).rand(), torch.rand(1, generator=Started()))
for wrong in (lambda: Started.__mro__[1].__init__(torch.Generator(), "cpu"), lambda: torch.Generator(3, 4), lambda: datetime.datetime.now(3)):
    try:
        wrong()
    except (TypeError, RuntimeError) as error:
        print(type(error).__name__, str(error).splitlines()[0])


@dataclasses.dataclass
class Annotated:
    when: datetime.datetime = dataclasses.field(default_factory=datetime.datetime.now)
    day: typing.Optional[datetime.date] = None
    clock: typing.ClassVar = time.time


print(typing.get_type_hints(Annotated), type(Annotated().when), Annotated.__match_args__)
match datetime.datetime.now():
    case datetime.datetime(year=year):
        print(year > 2000)

connection = sqlite3.connect(":memory:", detect_types=sqlite3.PARSE_DECLTYPES)
sqlite3.register_adapter(datetime.datetime, lambda value: "own " + value.isoformat())
print(connection.execute("select ?", (datetime.datetime(2024, 1, 2),)).fetchone())
print(connection.execute("select typeof(?)", (datetime.datetime.now(),)).fetchone())
berlin = datetime.timezone(datetime.timedelta(hours=1))
if zoneinfo.available_timezones():
    berlin = zoneinfo.ZoneInfo("Europe/Berlin")
print(datetime.datetime.now(berlin).tzinfo, datetime.datetime.now(tz=berlin).utcoffset() is not None)
print(datetime.datetime.fromtimestamp(0, berlin).hour, json.dumps([1]), collections.Counter([type(datetime.date.today())]))


class Holds:
    """Functions written in C do not become methods here."""

    clock, count, cores, listing, draw, pick, entropy = (
        time.time, time.perf_counter_ns, os.cpu_count, os.listdir, random.random, random.choice, os.urandom,
    )
    now, legacy, seed = datetime.datetime.now, np.random.rand, random.seed
    local = time.localtime


held = Holds()
held.seed(3)
print(type(held.clock()), held.count() > 0, held.cores() > 0, len(held.listing(os.sep)) > 0, held.draw(), held.pick([1, 2]))
print(len(held.entropy(3)), type(held.now()), type(held.legacy()), held.local(0).tm_year)
for place in (time.time, time.localtime, os.listdir, os.urandom, os.stat, os._exit, os.getpid, random.random, datetime.datetime.now,
              datetime.datetime.utcnow, datetime.date.today, torch.Generator().manual_seed, np.empty):  # fmt: skip
    print(type(place), place.__name__, place.__qualname__, type(place.__self__).__name__, inspect.isbuiltin(place))
    print(inspect.isroutine(place), copy.deepcopy(place) is place or type(place.__self__) is torch.Generator, (place.__doc__ or "")[:30])
for place in (time.time, os.listdir, os.getpid, datetime.datetime.now, torch.manual_seed, random.choice):
    again = pickle.loads(pickle.dumps(place))
    print(again == place or type(again.__self__) is random.Random, getattr(place, "__text_signature__", None))
for place in (random.choice, random.uniform, np.random.rand):
    print(type(place), place.__self__ is not None, type(place.__func__).__name__ in ("function", "cython_function_or_method"))

shown = io.StringIO()
handler = logging.StreamHandler(shown)
handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
logging.getLogger().addHandler(handler)
logging.warning("hello")
print(len(shown.getvalue()), shown.getvalue()[-14:].strip())

"""No type is replaced in a watched process, and wrappers are of the type of what they wrap.

What a program can tell: programs/awkward/exact_types.py, run by test_transparency.py.
"""

from __future__ import annotations

import builtins
import ctypes
import datetime
import math
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from watched_program import run

from samerun.base import wrapping
from samerun.record import pins
from samerun.record.trace import format as f

READS_CLOCKS = """
    import datetime, time, warnings
    import torch
    from datetime import datetime as moment
    class Own(moment):
        pass
    warnings.simplefilter("ignore")
    seconds = [
        time.time(), moment.now().timestamp(), moment.now(datetime.timezone.utc).timestamp(),
        moment.now(tz=datetime.timezone(datetime.timedelta(hours=5))).timestamp(), moment.today().timestamp(),  # now
        moment.utcnow().replace(tzinfo=datetime.timezone.utc).timestamp(), Own.now().timestamp(),
        Own.utcnow().replace(tzinfo=datetime.timezone.utc).timestamp(), time.mktime(time.localtime()),
    ]
    kinds = {type(moment.now()), type(Own.now()), type(Own.utcnow()), type(datetime.date.today()), type(Own.today())}
    print(*(int(each) for each in seconds))
    print(*sorted(kind.__name__ for kind in kinds), datetime.date.today().year)
    torch.ones(2).sum()
"""


@pytest.mark.parametrize("config", [{"clock_shift": 4e8}, {"pins": ("clock",)}], ids=["shifted", "held"])
def test_clocks_are_shifted_and_held_without_another_type(tmp_path: Path, config: dict[str, object]) -> None:
    done = run(READS_CLOCKS, tmp_path / "watched", **config)
    assert done.traces.failures == []
    seconds, kinds = done.stdout.decode().splitlines()
    expected = pins.PINNED_CLOCK_START if "pins" in config else time.time() + 4e8
    assert all(abs(int(each) - expected) < 300 for each in seconds.split()), seconds
    assert kinds == f"Own date datetime {time.gmtime(expected).tm_year}"
    clocks = done.events(f.CLOCK)
    assert {"datetime.now", "datetime.today", "datetime.utcnow", "date.today", "time.time"} <= {e.name for e in clocks}
    assert [e.name for e in clocks if e.line == done.line("now")] == ["datetime.now", "datetime.today"]


def test_seeds_of_generators_are_noted_in_the_types_themselves(tmp_path: Path) -> None:
    done = run(
        """
        import numpy as np, torch
        from torch import Generator
        from numpy.random import RandomState
        taken = Generator.seed
        own = Generator()
        taken(own)  # torch
        RandomState(3).rand()
        RandomState(seed=3)
        class Legacy(RandomState):
            def __init__(self, number):
                super().__init__(number)
        Legacy(4)
        RandomState()  # numpy
        np.random.Generator(np.random.PCG64(1)).normal()  # draw
        torch.manual_seed(1)
        torch.default_generator.manual_seed(2)
        """,
        tmp_path,
    )
    assert done.traces.failures == []
    seeds = done.events(f.SEED, name="torch.Generator")
    assert [(e.line, e.is_seeded_by_system) for e in seeds] == [(done.line("torch"), True)]
    made = [e.line for e in done.events(f.CREATE, name="numpy.Generator") if e.is_seeded_by_system]
    assert made == [done.line("numpy")]
    assert done.line("draw") in [e.line for e in done.events(f.DRAW, name="numpy.Generator")]


def test_nothing_is_told_from_unwatched_without_our_library_but_the_type_of_functions() -> None:
    """Where the library was not built, a wrapper is still no method where it stands in a class."""
    code = """if True:
        import sys
        sys.modules["samerun.base._wrap"] = None
        import copy, datetime, pickle, time
        from samerun.base.wrapping import replace_method_in_type, make_wrapper_of_same_type
        plain, seen = time.time, []
        def reading():
            seen.append("time")
            return plain()
        time.time = make_wrapper_of_same_type(plain, reading)
        class Held:
            clock = time.time
        assert Held().clock() > 0 and pickle.loads(pickle.dumps(time.time)) is time.time
        assert copy.deepcopy(time.time) is time.time and repr(time.time) == repr(plain)
        original = vars(datetime.datetime)["now"]
        def now(cls, tz=None):
            seen.append(cls.__name__)
            return original.__get__(None, cls)(tz)
        undo = replace_method_in_type(datetime.datetime, "now", now)
        class Own(datetime.datetime):
            pass
        assert type(Own.now()) is Own and type(datetime.datetime.now()) is datetime.datetime
        undo()
        Own.now()
        assert vars(datetime.datetime)["now"] is original
        assert seen == ["time", "Own", "datetime"], seen
    """
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_a_wrapper_is_called_as_its_original_is() -> None:
    """A library that puts a function of its own into the method definition (time-machine) has the same signature."""

    class Definition(ctypes.Structure):
        _fields_ = (("name", ctypes.c_char_p), ("function", ctypes.c_void_p), ("flags", ctypes.c_int))

    def flags_of(function: object) -> int:
        definition = ctypes.POINTER(Definition).from_address(id(function) + object.__basicsize__)
        return int(definition.contents.flags)

    calls = [
        (time.time, (), {}), (time.time, (3,), {}), (time.sleep, (0,), {}), (time.sleep, (), {}),
        (time.localtime, (0,), {}), (time.localtime, (1, 2), {}), (datetime.datetime.now, (datetime.timezone.utc,), {}),
        (datetime.datetime.now, (), {"tz": datetime.timezone.utc}), (datetime.datetime.now, (), {"nothing": 1}),
        (datetime.datetime.fromtimestamp, (0,), {"tz": datetime.timezone.utc}), ([3, 1].sort, (), {"reverse": True}),
        (math.gcd, (4, 6), {}), (os.getpid, (), {}), ("a b".split, (" ",), {"maxsplit": 1}), (len, ([1],), {}),
    ]  # fmt: skip
    conventions = set()
    for original, positional, keywords in calls:
        wrapper = wrapping.make_wrapper_of_same_type(original, lambda *a, f=original, **k: f(*a, **k))
        assert flags_of(wrapper) == flags_of(original), original
        conventions.add(flags_of(original) & 0xF)
        outcomes = []
        for function in (original, wrapper):
            try:
                outcomes.append(type(function(*positional, **keywords)).__name__)
            except TypeError as error:
                outcomes.append(str(error))
        assert outcomes[0] == outcomes[1]
    assert conventions >= {1, 3, 4, 8}


def test_a_method_is_replaced_where_python_has_compiled_it_in_and_put_back() -> None:
    def read() -> datetime.datetime:
        return datetime.datetime.now()

    seen: list[type] = []
    original = vars(datetime.datetime)["now"]

    def now(cls: type, tz: datetime.tzinfo | None = None) -> datetime.datetime:
        seen.append(cls)
        return original.__get__(None, cls)(tz)  # type: ignore[no-any-return]

    for _ in range(50):
        read()
    undo = wrapping.replace_method_in_type(datetime.datetime, "now", now)
    try:
        for _ in range(50):
            read()
    finally:
        undo()
    read()
    assert seen == [datetime.datetime] * 50
    assert vars(datetime.datetime)["now"] is original


def test_init_of_a_type_in_c_is_replaced_for_subclasses_too_and_put_back() -> None:
    kind = np.random.RandomState
    flags, original, seen = kind.__flags__, vars(kind)["__init__"], []

    def __init__(self: object, *args: object, **kwargs: object) -> None:
        seen.append(args)
        original(self, *args, **kwargs)

    class Own(kind):  # type: ignore[misc,valid-type]
        pass

    undo = wrapping.replace_method_in_type(kind, "__init__", __init__)
    try:
        assert kind(3).rand() == Own(3).rand()
        assert (kind.__flags__ ^ flags) & 1 << 8 == 0  # it may not be changed
    finally:
        undo()
    assert kind(4).rand() == Own(4).rand()
    assert seen == [(3,), (3,)]
    assert vars(kind)["__init__"] is original


@pytest.mark.skipif(wrapping._wrap is None, reason="the library was not built")
def test_wrappers_are_of_the_type_of_what_they_wrap() -> None:
    def many(*args: object, **kwargs: object) -> tuple[object, ...]:
        return (*args, *sorted(kwargs.items()))

    wrapped = wrapping.make_wrapper_of_same_type(print, many)
    assert type(wrapped) is type(print) and wrapped.__name__ == "print" and wrapped.__self__ is builtins
    assert wrapped(*range(20), b=1) == (*range(20), ("b", 1))
    method = wrapping.make_wrapper_of_same_type(vars(str)["split"], many)
    assert type(method) is type(str.join)
    assert method("a", *range(12), k=2) == ("a", *range(12), ("k", 2))
    updating = wrapping.make_wrapper_of_same_type(vars(str)["format"], many)
    assert updating("a", *range(12), k=2) == ("a", *range(12), ("k", 2)) and updating("a") == ("a",)
    with pytest.raises(TypeError):
        method(b"another type")
    with pytest.raises(ZeroDivisionError):
        wrapping.make_wrapper_of_same_type(time.time, lambda: 1 / 0)()

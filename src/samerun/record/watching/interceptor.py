"""The record that every file in `interceptors/` exposes, and how attributes are wrapped."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from xxhash import xxh3_64_intdigest

from samerun.base.wrapping import make_wrapper_of_same_type, replace_method_in_type
from samerun.record import pins
from samerun.record.watching.recorder import Recorder
from samerun.record.watching.stack_frames import hide_frame_from_warnings


@dataclass(frozen=True)
class Interceptor:
    """One source of events.

    `module`: the module whose loading makes the source available; `install(recorder, module)` is called
    once, right after it was loaded (at once when it is loaded already). It is never imported for this.
    """

    name: str
    module: str
    install: Callable[[Recorder, Any], None]


def pins_results_to_submission_order(recorder: Recorder) -> bool:
    """True if a pin asks that results are taken in the order in which the tasks were submitted."""
    return not {pins.SERIAL, pins.IN_ORDER}.isdisjoint(recorder.config.pins)


def pin_seed_if_asked(recorder: Recorder, seed: Any) -> Any:
    """A fixed seed where the pin for seeds is at the current user line; everywhere else the seed itself."""
    return pins.pinned_seed(pins.SEED) if recorder.is_pinned_here(pins.SEED) else seed


def draw_again_from_run_specific_seed(recorder: Recorder, generator: Any, draw: Callable[[], Any]) -> Any:
    """What is drawn from another state in each run; the generator goes on as if it had drawn from its own.

    `generator`: one of `random.Random` or `numpy.random.RandomState`.
    """
    read, write = (getattr(generator, name, None) for name in ("getstate", "setstate"))
    read, write = read or generator.get_state, write or generator.set_state
    seed = xxh3_64_intdigest(recorder.config.folder.encode()) & 0xFFFFFFFF
    recorder.thread.inside_samerun += 1
    try:
        draw()  # what is shuffled in place is shuffled twice
        after = read()
        generator.seed(seed)
        drawn = draw()
        write(after)
    finally:
        recorder.thread.inside_samerun -= 1
    return drawn


def begin_recording_in_thread(recorder: Recorder, role: str) -> None:
    """In a thread that begins: give it a number, and enter the modes that see operators, which are per thread."""
    try:
        recorder.number_and_emit_thread(role)
        if recorder.enter_operators is not None and recorder.recording:
            recorder.enter_operators()
        if recorder.numbers is not None:
            recorder.numbers.enter_float64_or_summary_mode()
    except Exception as error:
        recorder.stop(f"samerun's recorder failed in a new thread: {error!r}")


class GeneratorsOfThreads:
    """With the pin `thread-streams`: each thread but the main one draws from a generator of its own.

    `make`: makes one of a seed. Its methods have the names of the functions that draw from the global generator.
    """

    def __init__(self, recorder: Recorder, make: Callable[[int], Any]) -> None:
        self.recorder, self.make = recorder, make
        self.is_pinned = pins.THREAD_STREAMS in recorder.config.pins
        self.made: dict[str, Any] = {}

    def get_or_make_for_this_thread(self) -> Any:
        """None for the main thread, and without the pin."""
        thread = self.recorder.thread
        if not self.is_pinned or thread.number <= 0:
            return None
        if thread.role not in self.made:
            thread.inside_samerun += 1
            try:
                self.made[thread.role] = self.make(pins.pinned_seed(f"thread {thread.role}"))
            finally:
                thread.inside_samerun -= 1
        return self.made[thread.role]

    def draw(self, generator: Any, name: str, *args: Any, **kwargs: Any) -> Any:
        self.recorder.thread.inside_samerun += 1
        try:
            return getattr(generator, name)(*args, **kwargs)
        finally:
            self.recorder.thread.inside_samerun -= 1


def wrap_attribute(owner: Any, name: str, make_wrapper: Callable[[Any], Any]) -> None:
    """Replace `owner.name` by `make(original)`, as an object of the original's type. Does nothing if it is absent.

    The wrapper's stack frame is hidden, so that warnings name the same line of the program (decision 0040).
    """
    original = getattr(owner, name, None)
    if original is None:
        return
    replacement = make_wrapper_of_same_type(original, hide_frame_from_warnings(make_wrapper(original)))
    home = sys.modules.get(getattr(original, "__module__", None) or "")
    if isinstance(owner, ModuleType) and home is not owner and getattr(home, name, None) is original:
        try:
            replacement.__module__ = owner.__name__  # pickle looks for it there: `os.getpid` is at home in `posix`
        except AttributeError:  # a bound method, which is pickled by what it is bound to
            pass
    setattr(owner, name, replacement)


def wrap_builtin_method(builtin_type: type, name: str, make_wrapper: Callable[[Any], Any]) -> None:
    """Replace a method of a type written in C, in the type itself, by `make(original)` (decision 0048).

    `original` is what stands in the type: a method takes `self`, a class method is bound by its `__get__`.
    """
    original = next((vars(each)[name] for each in builtin_type.__mro__ if name in vars(each)), None)
    if original is not None:
        replace_method_in_type(builtin_type, name, hide_frame_from_warnings(make_wrapper(original)))


class MethodCallingBackOnLookup:
    """A method that calls `on_lookup` when it is looked up on an object, which is right before it is called.

    A wrapper function would add a stack frame: to the program's tracebacks, and to what `stacklevel` counts, so that a
    warning would name another line. `method`: what stands in the class, which may be another such method.
    """

    def __init__(self, method: Any, on_lookup: Callable[[Any], None]) -> None:
        self.method, self.on_lookup = method, on_lookup

    def __get__(self, instance: Any, kind: type | None = None) -> Any:
        if instance is not None:
            self.on_lookup(instance)
        return self.method.__get__(instance, kind)

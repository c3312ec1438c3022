"""What differs from process to process: environment variables, process number, temporary names, the system's entropy.

With the pin `entropy` the process number, temporary names and the bytes of `os.urandom` are fixed.
"""

from __future__ import annotations

import itertools
import os
import sys
from collections.abc import Callable
from typing import Any

from samerun.record import pins
from samerun.record.config import CONFIG_VARIABLE, to_original_path
from samerun.record.trace import format as f
from samerun.record.watching import stack_frames
from samerun.record.watching.interceptor import Interceptor, wrap_attribute
from samerun.record.watching.recorder import Recorder


def hold_and_intercept_environment_reads(recorder: Recorder, os: Any) -> None:
    """Wrap the one method that `environ[...]`, `environ.get` and `getenv` all come to.

    Not where numbers are compared: the compiler splits a region that reads a variable through the wrapper, and what is
    compiled is then no longer what the program compiles alone.
    """
    if recorder.config.numbers is not None:
        return
    kind = type(os.environ)
    original = kind.__getitem__
    held = recorder.config.held_environment

    def read_or_hold(self: Any, key: Any) -> Any:
        if held is None or key not in held.values or recorder.thread.inside_samerun:
            return original(self, key)
        user_line = stack_frames.find_user_line()
        file = to_original_path(user_line.file, recorder.config.copied_folder)
        if (file, user_line.line) != (held.file, held.line):
            return original(self, key)
        value = held.values[key]
        if value is None:
            raise KeyError(key)
        return value

    def getitem(self: Any, key: Any) -> Any:
        try:
            value = read_or_hold(self, key)
        except KeyError:
            record_read(key, b"")
            raise
        record_read(key, repr(value).encode("utf-8", "surrogatepass"))
        return value

    def record_read(key: Any, value: bytes) -> None:
        if recorder.stopped or recorder.thread.inside_samerun or not isinstance(key, str) or key.startswith("SAMERUN_"):
            return
        user_line = stack_frames.find_user_line()
        if user_line.is_direct and not stack_frames.is_environment_read_by_samerun():
            recorder.emit_host_event(f.ENVIRONMENT, key, value=value, user_line=user_line, thin_repeats=True)

    getitem.__doc__ = original.__doc__
    kind.__getitem__ = getitem


VARIABLES = Interceptor("environment", "os", hold_and_intercept_environment_reads)


PROCESS_NUMBERS = ("getpid", "getppid")
PROCESSORS = ("cpu_count", "process_cpu_count", "sched_getaffinity")


def pin_and_intercept_process_identity(recorder: Recorder, os: Any) -> None:
    """Watch the functions where the program itself calls them; the standard library needs the true numbers."""

    def wrap_query(original: Any) -> Any:
        name = original.__name__

        def ask(*args: Any, **kwargs: Any) -> Any:
            value = original(*args, **kwargs)
            if recorder.stopped or recorder.thread.inside_samerun:
                return value
            user_line = stack_frames.find_user_line()
            if not user_line.is_direct or not stack_frames.is_called_by_user():
                return value
            if name in PROCESS_NUMBERS and recorder.is_pinned_here(pins.ENTROPY):
                value = pins.pinned_seed(f"os.{name}", 22)  # no larger than Linux has them
            recorder.emit_host_event(
                f.FACT, f"os.{name}", value=repr(value).encode(), thin_repeats=True, user_line=user_line
            )
            return value

        return ask

    for name in (*PROCESS_NUMBERS, *PROCESSORS):
        wrap_attribute(os, name, wrap_query)


def pin_and_intercept_temporary_names(recorder: Recorder, tempfile: Any) -> None:
    """Temporary names are drawn from the system's entropy.

    Pinned names belong to one check. What an earlier run of it left under one of them is removed: the name would be
    taken, and the runs would get different ones.
    """
    check_folder = os.path.dirname(recorder.config.folder)
    pinned_names: set[str] = set()

    def hook(event: str, arguments: Any) -> None:
        if pinned_names and event in ("tempfile.mkdtemp", "tempfile.mkstemp") and not recorder.stopped:
            path = os.fsdecode(arguments[0])
            if any(name in os.path.basename(path) for name in pinned_names):
                remove_leftover_of_earlier_run(path, recorder)

    if recorder.has_pin_anywhere(pins.ENTROPY):
        sys.addaudithook(hook)

    def wrap_to_leave_unrecorded(original: Any) -> Any:
        def call_unrecorded(*args: Any, **kwargs: Any) -> Any:
            recorder.thread.inside_samerun += 1
            try:
                return original(*args, **kwargs)
            finally:
                recorder.thread.inside_samerun -= 1

        return call_unrecorded

    kind = tempfile._RandomNameSequence
    draw_name = wrap_to_leave_unrecorded(kind.__next__)  # its own generator is no generator of the program's line
    numbers = itertools.count()

    def __next__(self: Any) -> str:
        pinned = recorder.is_pinned_here(pins.ENTROPY)
        name: str
        if pinned:
            name = f"{pins.pinned_seed(f'temporary name {next(numbers)} {check_folder}'):08x}"
            pinned_names.add(name)
        else:
            name = draw_name(self)
        recorder.emit_host_event(f.ENTROPY, "tempfile", value=name.encode(), only_at_user_code=True, thin_repeats=True)
        return name

    kind.__next__ = __next__

    if hasattr(tempfile, "_get_default_tempdir"):
        # It tries folders with files of random names, which it removes: no result depends on them.
        wrap_attribute(tempfile, "_get_default_tempdir", wrap_to_leave_unrecorded)


def remove_leftover_of_earlier_run(path: str, recorder: Recorder) -> None:
    """Remove a file or folder that is older than this run: another process of this run may use one that is not."""
    recorder.thread.inside_samerun += 1
    try:
        if os.lstat(path).st_mtime_ns < os.stat(os.environ[CONFIG_VARIABLE]).st_mtime_ns:
            if os.path.isdir(path) and not os.path.islink(path):
                import shutil  # loads compression libraries that few programs have loaded when they start

                shutil.rmtree(path)
            else:
                os.unlink(path)
    except (OSError, KeyError):  # there is none
        pass
    finally:
        recorder.thread.inside_samerun -= 1


IDENTITY = Interceptor("identity", "os", pin_and_intercept_process_identity)
TEMPORARY_NAMES = Interceptor("identity-tempfile", "tempfile", pin_and_intercept_temporary_names)


def make_entropy_wrapper(recorder: Recorder, function: str) -> Callable[[Any], Any]:
    """A wrapper factory: the wrapped function's return value is recorded under the name `function`."""

    def wrap(original: Any) -> Any:
        def read_recorded(*args: Any, **kwargs: Any) -> Any:
            value = original(*args, **kwargs)
            recorder.emit_host_event(
                f.ENTROPY, function, value=repr(value).encode(), only_at_user_code=True, thin_repeats=True
            )
            return value

        return read_recorded

    return wrap


def pin_and_intercept_os_entropy(recorder: Recorder, os: Any) -> None:
    if recorder.has_pin_anywhere(pins.ENTROPY):
        stream = pins.make_pinned_byte_reader("urandom")

        def wrap_pinned(original: Any) -> Any:
            def read(size: int, *flags: Any) -> bytes:
                return stream(size) if recorder.is_pinned_here(pins.ENTROPY) else bytes(original(size, *flags))

            return read

        wrap_attribute(os, "urandom", wrap_pinned)
        wrap_attribute(os, "getrandom", wrap_pinned)
    wrap_attribute(os, "urandom", make_entropy_wrapper(recorder, "os.urandom"))
    wrap_attribute(os, "getrandom", make_entropy_wrapper(recorder, "os.getrandom"))
    random = sys.modules.get("random")
    if random is not None:
        random._urandom = os.urandom  # type: ignore[attr-defined]


def rebind_urandom_of_random(recorder: Recorder, random: Any) -> None:
    """`SystemRandom` and `secrets` read through `random._urandom`, which holds the unwrapped function."""
    random._urandom = sys.modules["os"].urandom


def intercept_uuid(recorder: Recorder, uuid: Any) -> None:
    wrap_attribute(uuid, "uuid1", make_entropy_wrapper(recorder, "uuid.uuid1"))
    wrap_attribute(uuid, "uuid4", make_entropy_wrapper(recorder, "uuid.uuid4"))


ENTROPY = Interceptor("entropy", "os", pin_and_intercept_os_entropy)
ENTROPY_RANDOM = Interceptor("entropy-random", "random", rebind_urandom_of_random)
ENTROPY_UUID = Interceptor("entropy-uuid", "uuid", intercept_uuid)

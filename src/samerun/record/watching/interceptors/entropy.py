"""Randomness of the operating system: `os.urandom` and what is made of it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from samerun.record import pins
from samerun.record.trace import format as f
from samerun.record.watching.interceptor import Interceptor, wrap_attribute
from samerun.record.watching.recorder import Recorder


def make_entropy_wrapper(recorder: Recorder, function: str) -> Callable[[Any], Any]:
    """A wrapper factory: the wrapped function's return value is recorded under the name `function`."""

    def wrap(original: Any) -> Any:
        def read_recorded(*args: Any, **kwargs: Any) -> Any:
            value = original(*args, **kwargs)
            recorder.emit_host_event(f.ENTROPY, function, value=repr(value).encode(), user_only=True, thin=True)
            return value

        return read_recorded

    return wrap


def install_os_entropy(recorder: Recorder, os: Any) -> None:
    if recorder.has_pin_anywhere(pins.ENTROPY):
        stream = pins.pinned_byte_stream("urandom")

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


def install_uuid(recorder: Recorder, uuid: Any) -> None:
    wrap_attribute(uuid, "uuid1", make_entropy_wrapper(recorder, "uuid.uuid1"))
    wrap_attribute(uuid, "uuid4", make_entropy_wrapper(recorder, "uuid.uuid4"))


INTERCEPTOR = Interceptor("entropy", "os", install_os_entropy)
IN_RANDOM = Interceptor("entropy-random", "random", rebind_urandom_of_random)
IN_UUID = Interceptor("entropy-uuid", "uuid", install_uuid)

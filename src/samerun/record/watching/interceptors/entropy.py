"""Randomness of the operating system: `os.urandom` and what is made of it."""

from __future__ import annotations

import sys
from typing import Any

from samerun.record import pins
from samerun.record.trace import format as f
from samerun.record.watching.interceptor import Interceptor, wrap_attribute
from samerun.record.watching.recorder import Recorder


def wrap_recorded(recorder: Recorder, name: str) -> Any:
    """A wrapper factory: the wrapped function's return value is recorded under `name`."""

    def wrap(original: Any) -> Any:
        def read_recorded(*args: Any, **kwargs: Any) -> Any:
            value = original(*args, **kwargs)
            recorder.emit_host_event(f.ENTROPY, name, value=repr(value).encode(), user_only=True, thin=True)
            return value

        return read_recorded

    return wrap


def install(recorder: Recorder, os: Any) -> None:
    if recorder.has_pin(pins.ENTROPY):
        stream = pins.pinned_byte_stream("urandom")

        def wrap_pinned(original: Any) -> Any:
            def read(size: int, *flags: Any) -> bytes:
                return stream(size) if recorder.is_pinned_here(pins.ENTROPY) else bytes(original(size, *flags))

            return read

        wrap_attribute(os, "urandom", wrap_pinned)
        wrap_attribute(os, "getrandom", wrap_pinned)
    wrap_attribute(os, "urandom", wrap_recorded(recorder, "os.urandom"))
    wrap_attribute(os, "getrandom", wrap_recorded(recorder, "os.getrandom"))
    random = sys.modules.get("random")
    if random is not None:
        random._urandom = os.urandom  # type: ignore[attr-defined]


def install_random(recorder: Recorder, random: Any) -> None:
    """`SystemRandom` and `secrets` read through `random._urandom`, which holds the unwrapped function."""
    random._urandom = sys.modules["os"].urandom


def install_uuid(recorder: Recorder, uuid: Any) -> None:
    wrap_attribute(uuid, "uuid1", wrap_recorded(recorder, "uuid.uuid1"))
    wrap_attribute(uuid, "uuid4", wrap_recorded(recorder, "uuid.uuid4"))


INTERCEPTOR = Interceptor("entropy", "os", install)
IN_RANDOM = Interceptor("entropy-random", "random", install_random)
IN_UUID = Interceptor("entropy-uuid", "uuid", install_uuid)

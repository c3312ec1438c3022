"""Randomness of the operating system: `os.urandom` and what is made of it."""

from __future__ import annotations

import sys
from typing import Any

from samerun.record import pins
from samerun.record.trace import format as f
from samerun.record.watching.interceptor import Interceptor, wrap_attribute
from samerun.record.watching.recorder import Recorder


def watch(recorder: Recorder, name: str) -> Any:
    """A maker of wrappers that record the value a function returns."""

    def make(original: Any) -> Any:
        def reading(*args: Any, **kwargs: Any) -> Any:
            value = original(*args, **kwargs)
            recorder.emit_host_event(f.ENTROPY, name, value=repr(value).encode(), user_only=True, thin=True)
            return value

        return reading

    return make


def install(recorder: Recorder, os: Any) -> None:
    if recorder.has_pin(pins.ENTROPY):
        stream = pins.byte_stream("urandom")

        def held(original: Any) -> Any:
            def read(size: int, *flags: Any) -> bytes:
                return stream(size) if recorder.is_pinned_here(pins.ENTROPY) else bytes(original(size, *flags))

            return read

        wrap_attribute(os, "urandom", held)
        wrap_attribute(os, "getrandom", held)
    wrap_attribute(os, "urandom", watch(recorder, "os.urandom"))
    wrap_attribute(os, "getrandom", watch(recorder, "os.getrandom"))
    random = sys.modules.get("random")
    if random is not None:
        random._urandom = os.urandom  # type: ignore[attr-defined]


def install_random(recorder: Recorder, random: Any) -> None:
    """`SystemRandom` and `secrets` read through a name of their own."""
    random._urandom = sys.modules["os"].urandom


def install_uuid(recorder: Recorder, uuid: Any) -> None:
    wrap_attribute(uuid, "uuid1", watch(recorder, "uuid.uuid1"))
    wrap_attribute(uuid, "uuid4", watch(recorder, "uuid.uuid4"))


INTERCEPTOR = Interceptor("entropy", "os", install)
IN_RANDOM = Interceptor("entropy-random", "random", install_random)
IN_UUID = Interceptor("entropy-uuid", "uuid", install_uuid)

"""Python's `random`: seeding, draws of the global generator, generators made without a seed."""

from __future__ import annotations

import sys
from typing import Any

from xxhash import xxh3_64_intdigest

from samerun.record import pins
from samerun.record.digests.rng_digests import digest_python_state
from samerun.record.trace import format as f
from samerun.record.watching.interceptor import Interceptor, wrap_attribute
from samerun.record.watching.recorder import Recorder

DRAWS = (
    "random", "uniform", "triangular", "randint", "choice", "randrange", "sample", "shuffle", "choices",
    "normalvariate", "lognormvariate", "expovariate", "vonmisesvariate", "gammavariate", "gauss",
    "betavariate", "binomialvariate", "paretovariate", "weibullvariate", "getrandbits", "randbytes",
)  # fmt: skip


def digest_python_seed(seed: Any) -> int:
    return xxh3_64_intdigest(repr(seed).encode("utf-8", "surrogatepass"))


def install_python_random(recorder: Recorder, random: Any) -> None:
    """Wrap the module's functions, and `Random.seed`, through which every instance is seeded."""
    get_state = random.getstate
    if pins.PYTHON in recorder.config.pins:
        random.seed(pins.pinned_seed("python"))

    def global_state() -> bytes:
        return digest_python_state(get_state())

    def wrap_draw(original: Any) -> Any:
        name = original.__name__

        def drawing(*args: Any, **kwargs: Any) -> Any:
            if not recorder.thread.inside_samerun and not recorder.stopped:
                recorder.record_draw("python", name, global_state)
            return original(*args, **kwargs)

        return drawing

    for name in DRAWS:
        wrap_attribute(random, name, wrap_draw)

    def wrap_global_seed(original: Any) -> Any:
        def seed(a: Any = None, version: int = 2) -> None:
            if a is None:
                recorder.emit_host_event(f.SEED, "python", flags=f.UNSEEDED, user_only=True)
                if pins.PYTHON in recorder.config.pins:
                    a = pins.pinned_seed("python")
            else:
                recorder.emit_host_event(f.SEED, "python", inputs=digest_python_seed(a))
            original(a, version)

        return seed

    wrap_attribute(random, "seed", wrap_global_seed)

    def wrap_instance_seed(original: Any) -> Any:
        def seed(self: Any, a: Any = None, version: int = 2) -> None:
            if a is None and not isinstance(self, random.SystemRandom):
                recorder.emit_host_event(f.CREATE, "python.Random", flags=f.UNSEEDED, user_only=True)
                if recorder.is_pinned_here(pins.PYTHON_GENERATOR):
                    a = pins.pinned_seed("python.Random")
            elif a is not None:
                recorder.emit_host_event(f.CREATE, "python.Random", inputs=digest_python_seed(a), user_only=True)
            original(self, a, version)
            if not isinstance(self, random.SystemRandom):
                recorder.remember_program_generator(self)

        return seed

    wrap_attribute(random.Random, "seed", wrap_instance_seed)

    def wrap_setstate(original: Any) -> Any:
        def setstate(value: Any) -> None:
            # The compiler gives back the state it found, from C, as if the user's line did: that seeds nothing.
            if "torch._dynamo" not in sys.modules or value != get_state():
                recorder.emit_host_event(f.SEED, "python", inputs=digest_python_seed(value))
            original(value)

        return setstate

    wrap_attribute(random, "setstate", wrap_setstate)


INTERCEPTOR = Interceptor("python-random", "random", install_python_random)

"""The generators of Python's `random` and of torch: seeding, creation, draws (NumPy's: numpy_random.py).

Draws from torch's generators are operators, recorded where operators are.
"""

from __future__ import annotations

import sys
from typing import Any

from xxhash import xxh3_64_intdigest

from samerun.record import pins
from samerun.record.digests.state_digests import digest_python_random_state
from samerun.record.trace import format as f
from samerun.record.watching import stack_frames
from samerun.record.watching.interceptor import (
    GeneratorsOfThreads,
    Interceptor,
    draw_again_from_run_specific_seed,
    pin_seed_if_asked,
    wrap_attribute,
    wrap_builtin_method,
)
from samerun.record.watching.recorder import Recorder

DRAWS = (
    "random", "uniform", "triangular", "randint", "choice", "randrange", "sample", "shuffle", "choices",
    "normalvariate", "lognormvariate", "expovariate", "vonmisesvariate", "gammavariate", "gauss",
    "betavariate", "binomialvariate", "paretovariate", "weibullvariate", "getrandbits", "randbytes",
)  # fmt: skip


def digest_python_seed(seed: Any) -> int:
    return xxh3_64_intdigest(repr(seed).encode("utf-8", "surrogatepass"))


def pin_and_intercept_python_random(recorder: Recorder, random: Any) -> None:
    """Wrap the module's functions, and `Random.seed`, through which every instance is seeded."""
    get_state = random.getstate
    if pins.PYTHON in recorder.config.pins:
        random.seed(pins.pinned_seed("python"))

    def global_state() -> bytes:
        return digest_python_random_state(get_state())

    freed = recorder.has_pin_anywhere(pins.FREE)
    of_threads = GeneratorsOfThreads(recorder, random.Random)

    def wrap_draw(original: Any) -> Any:
        name = original.__name__

        def drawing(*args: Any, **kwargs: Any) -> Any:
            if not recorder.thread.inside_samerun and not recorder.stopped:
                own = of_threads.get_or_make_for_this_thread()
                if own is not None:
                    recorder.record_draw_at_user_line(
                        "python", name, lambda: digest_python_random_state(own.getstate())
                    )
                    return of_threads.draw(own, name, *args, **kwargs)
                recorder.record_draw_at_user_line("python", name, global_state)
                if freed and recorder.is_pinned_here(pins.FREE):
                    return draw_again_from_run_specific_seed(
                        recorder, original.__self__, lambda: original(*args, **kwargs)
                    )
            return original(*args, **kwargs)

        return drawing

    for name in DRAWS:
        wrap_attribute(random, name, wrap_draw)

    def wrap_global_seed(original: Any) -> Any:
        def seed(a: Any = None, version: int = 2) -> None:
            if a is None:
                recorder.emit_host_event(f.SEED, "python", flags=f.UNSEEDED, only_at_user_code=True)
                if pins.PYTHON in recorder.config.pins:
                    a = pins.pinned_seed("python")
            else:
                recorder.emit_host_event(f.SEED, "python", inputs=digest_python_seed(a))
                a = pin_seed_if_asked(recorder, a)
            original(a, version)

        return seed

    wrap_attribute(random, "seed", wrap_global_seed)

    def wrap_instance_seed(original: Any) -> Any:
        def seed(self: Any, a: Any = None, version: int = 2) -> None:
            if a is None and not isinstance(self, random.SystemRandom):
                recorder.emit_host_event(f.CREATE, "python.Random", flags=f.UNSEEDED, only_at_user_code=True)
                if recorder.is_pinned_here(pins.PYTHON_GENERATOR):
                    a = pins.pinned_seed("python.Random")
            elif a is not None:
                recorder.emit_host_event(
                    f.CREATE, "python.Random", inputs=digest_python_seed(a), only_at_user_code=True
                )
                a = pin_seed_if_asked(recorder, a)
            original(self, a, version)
            if not isinstance(self, random.SystemRandom):
                recorder.keep_generator_if_states_are_kept(self)

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


PYTHON_RANDOM = Interceptor("python-random", "random", pin_and_intercept_python_random)


def pin_and_intercept_torch_seeding(recorder: Recorder, torch: Any) -> None:
    """Wrap `manual_seed`, `seed`, `set_rng_state`, and the methods of `torch.Generator`."""
    pinned = recorder.config.pins
    kinds = {pin.split("@")[0] for pin in pinned}
    if pins.TORCH in pinned:
        torch.default_generator.manual_seed(pins.pinned_seed("torch"))

    def wrap_manual_seed(original: Any) -> Any:
        def manual_seed(seed: Any) -> Any:
            recorder.emit_host_event(f.SEED, "torch", inputs=_seed_to_uint64(seed))
            if pins.EXTRA in kinds and recorder.is_pinned_here(pins.EXTRA):
                return torch.default_generator
            return original(pin_seed_if_asked(recorder, seed))

        return manual_seed

    def wrap_system_seed(original: Any) -> Any:
        def seed() -> int:
            recorder.emit_host_event(f.SEED, "torch", flags=f.UNSEEDED)
            if pins.TORCH in pinned:
                value = pins.pinned_seed("torch")
                torch.default_generator.manual_seed(value)
                return value
            return int(original())

        return seed

    def wrap_set_rng_state(original: Any) -> Any:
        def set_rng_state(new_state: Any) -> Any:
            if stack_frames.is_called_by_torch():
                return original(new_state)
            recorder.thread.inside_samerun += 1
            try:
                bits = xxh3_64_intdigest(bytes(new_state.cpu().numpy())) if new_state.numel() else 0
            finally:
                recorder.thread.inside_samerun -= 1
            recorder.emit_host_event(f.SEED, "torch", inputs=bits)
            return original(new_state)

        return set_rng_state

    for owner in (torch, torch.random):
        wrap_attribute(owner, "manual_seed", wrap_manual_seed)
        wrap_attribute(owner, "seed", wrap_system_seed)
        wrap_attribute(owner, "set_rng_state", wrap_set_rng_state)
    _intercept_torch_generator_init_and_seeding(recorder, torch)


def _intercept_torch_generator_init_and_seeding(recorder: Recorder, torch: Any) -> None:
    """Watch `torch.Generator` in the type itself, but for torch's own generators of each device."""

    def is_default_generator(generator: Any) -> bool:
        return generator is torch.default_generator or any(each is generator for each in torch.cuda.default_generators)

    def wrap_making(original: Any) -> Any:
        def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
            if getattr(type(self), "__init__") is not plain.__init__:  # a subclass's calls this: no arguments then
                original(self, *args, **kwargs)
            recorder.emit_host_event(f.CREATE, "torch.Generator", inputs=1, only_at_user_code=True)
            recorder.keep_generator_if_states_are_kept(self)

        return __init__

    def wrap_manual_seed(original: Any) -> Any:
        def manual_seed(self: Any, *args: Any, **kwargs: Any) -> Any:
            seeded = original(self, *args, **kwargs)
            if not is_default_generator(self):
                recorder.emit_host_event(f.SEED, "torch.Generator", inputs=_seed_to_uint64(self.initial_seed()))
                if recorder.has_pin_anywhere(pins.SEED):
                    original(self, pin_seed_if_asked(recorder, self.initial_seed()))
            return seeded

        return manual_seed

    def wrap_system_seed(original: Any) -> Any:
        def seed(self: Any) -> Any:
            if is_default_generator(self):
                return original(self)
            recorder.emit_host_event(f.SEED, "torch.Generator", flags=f.UNSEEDED)
            if recorder.is_pinned_here(pins.TORCH_GENERATOR):
                manual_seed(self, pins.pinned_seed("torch-generator"))
                return self.initial_seed()
            return original(self)

        return seed

    plain = torch._C.Generator
    manual_seed = vars(plain)["manual_seed"]
    wrap_builtin_method(plain, "__init__", wrap_making)
    wrap_builtin_method(plain, "manual_seed", wrap_manual_seed)
    wrap_builtin_method(plain, "seed", wrap_system_seed)


def _seed_to_uint64(seed: Any) -> int:
    try:
        return int(seed) & 0xFFFFFFFFFFFFFFFF
    except (TypeError, ValueError):
        return 0


TORCH_RANDOM = Interceptor("torch-random", "torch", pin_and_intercept_torch_seeding)

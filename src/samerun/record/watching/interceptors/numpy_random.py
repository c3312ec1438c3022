"""NumPy's random numbers: the global generator, `Generator` and `RandomState`, and libraries that draw from them.

scikit-learn and SciPy do not call the functions of `numpy.random`: they ask `check_random_state` for a generator.
Where none is given, it returns the object behind `numpy.random`, and the library draws from it directly. What is
recorded then is that the generator was taken.
"""

from __future__ import annotations

import sys
from typing import Any

from xxhash import xxh3_64_intdigest, xxh3_128_digest

from samerun.record import pins
from samerun.record.digests.state_digests import digest_numpy_random_state, find_numpy_global_generator
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

LEGACY_DRAWS = (
    "beta", "binomial", "bytes", "chisquare", "choice", "dirichlet", "exponential", "f", "gamma",
    "geometric", "gumbel", "hypergeometric", "laplace", "logistic", "lognormal", "logseries",
    "multinomial", "multivariate_normal", "negative_binomial", "noncentral_chisquare", "noncentral_f",
    "normal", "pareto", "permutation", "poisson", "power", "rand", "randint", "randn", "random",
    "random_integers", "random_sample", "ranf", "rayleigh", "sample", "shuffle", "standard_cauchy",
    "standard_exponential", "standard_gamma", "standard_normal", "standard_t", "triangular", "uniform",
    "vonmises", "wald", "weibull", "zipf",
)  # fmt: skip
GENERATOR_DRAWS = (
    "beta", "binomial", "bytes", "chisquare", "choice", "dirichlet", "exponential", "gamma", "geometric",
    "gumbel", "integers", "laplace", "logistic", "lognormal", "multinomial", "multivariate_normal",
    "normal", "pareto", "permutation", "permuted", "poisson", "power", "random", "rayleigh", "shuffle",
    "standard_cauchy", "standard_exponential", "standard_gamma", "standard_normal", "standard_t",
    "triangular", "uniform", "vonmises", "wald", "weibull", "zipf",
)  # fmt: skip


def digest_numpy_seed(seed: Any) -> int:
    entropy = getattr(seed, "entropy", None)  # a SeedSequence
    if entropy is not None:
        seed = (entropy, getattr(seed, "spawn_key", ()))
    return xxh3_64_intdigest(repr(seed).encode("utf-8", "surrogatepass"))


def pin_and_intercept_numpy_random(recorder: Recorder, numpy_random: Any) -> None:
    """Watch the global generator, seeds from the system, and generators that `default_rng` makes."""
    if pins.NUMPY_GLOBAL in recorder.config.pins:
        numpy_random.seed(pins.pinned_seed("numpy"))
    intercept_global_draws(recorder, numpy_random)
    intercept_global_seeding(recorder, numpy_random)
    record_unseeded_creation_and_pin_if_asked(recorder)
    intercept_generator_draws(recorder, numpy_random)
    intercept_random_state_draws(recorder, numpy_random)


def intercept_global_draws(recorder: Recorder, numpy_random: Any) -> None:
    """Wrap the module's functions, which draw from the global generator."""
    get_state = numpy_random.get_state

    def global_state() -> bytes:
        return digest_numpy_random_state(get_state(legacy=False))

    freed = recorder.has_pin_anywhere(pins.FREE)
    of_threads = GeneratorsOfThreads(recorder, numpy_random.RandomState)

    def wrap_draw(original: Any) -> Any:
        name = original.__name__
        method = {"ranf": "random_sample", "sample": "random_sample"}.get(name, name)

        def drawing(*args: Any, **kwargs: Any) -> Any:
            if not recorder.thread.inside_samerun and not recorder.stopped:
                own = of_threads.get_or_make_for_this_thread()
                if own is not None:
                    recorder.record_draw_at_user_line(
                        "numpy", name, lambda: digest_numpy_random_state(own.get_state(legacy=False))
                    )
                    return of_threads.draw(own, method, *args, **kwargs)
                recorder.record_draw_at_user_line("numpy", name, global_state)
                if freed and recorder.is_pinned_here(pins.FREE):
                    return draw_again_from_run_specific_seed(
                        recorder, original.__self__, lambda: original(*args, **kwargs)
                    )
            return original(*args, **kwargs)

        drawing.__module__, drawing.__qualname__ = "numpy.random", name
        return drawing

    for name in LEGACY_DRAWS:
        wrap_attribute(numpy_random, name, wrap_draw)


def intercept_global_seeding(recorder: Recorder, numpy_random: Any) -> None:
    """Wrap `seed` and `set_state` of the global generator."""

    def wrap_seed(original: Any) -> Any:
        def seed(*args: Any, **kwargs: Any) -> None:
            value = args[0] if args else kwargs.get("seed")
            if value is None:
                recorder.emit_host_event(f.SEED, "numpy", flags=f.UNSEEDED)
                if pins.NUMPY_GLOBAL in recorder.config.pins:
                    args, kwargs = (pins.pinned_seed("numpy"),), {}
            else:
                recorder.emit_host_event(f.SEED, "numpy", inputs=digest_numpy_seed(value))
                args, kwargs = (pin_seed_if_asked(recorder, value),), {}
            recorder.thread.inside_samerun += 1
            try:
                original(*args, **kwargs)
            finally:
                recorder.thread.inside_samerun -= 1

        return seed

    def wrap_set_state(original: Any) -> Any:
        def set_state(state: Any) -> None:
            recorder.emit_host_event(f.SEED, "numpy", inputs=digest_numpy_seed(state))
            original(state)

        return set_state

    wrap_attribute(numpy_random, "seed", wrap_seed)
    wrap_attribute(numpy_random, "set_state", wrap_set_state)


def record_unseeded_creation_and_pin_if_asked(recorder: Recorder) -> None:
    """Every generator made without a seed asks `bit_generator.randbits` for one."""
    stream = pins.make_pinned_byte_reader("numpy-generator")

    def wrap_system_seed(original: Any) -> Any:
        def randbits(bits: int) -> int:
            user_line = stack_frames.find_user_line(through_imports=True)  # a library may make one when it is imported
            recorder.emit_host_event(
                f.CREATE, "numpy.Generator", flags=f.UNSEEDED, user_line=user_line, only_at_user_code=True
            )
            owner = stack_frames.find_line_using_unseeded_object()
            if owner is not None:
                recorder.emit_host_event(f.CREATE, "numpy.Generator", aux="owner", flags=f.UNSEEDED, user_line=owner)
            if recorder.is_pinned_here(pins.NUMPY_GENERATOR, user_line):
                return int.from_bytes(stream((bits + 7) // 8), "little") >> (-bits % 8)
            recorder.thread.inside_samerun += 1  # it reads os.urandom, which is not the program's own doing
            try:
                return int(original(bits))
            finally:
                recorder.thread.inside_samerun -= 1

        return randbits

    bit_generator = sys.modules.get("numpy.random.bit_generator")
    if bit_generator is not None:
        wrap_attribute(bit_generator, "randbits", wrap_system_seed)


def intercept_generator_draws(recorder: Recorder, numpy_random: Any) -> None:
    """Watch the draws of `Generator`, and seeds given to `default_rng`."""
    plain = numpy_random.Generator

    def wrap_draw(original: Any) -> Any:
        name = original.__name__

        def drawing(self: Any, *args: Any, **kwargs: Any) -> Any:
            if not recorder.thread.inside_samerun and not recorder.stopped:
                recorder.record_draw_at_user_line(
                    "numpy.Generator", name, lambda: digest_numpy_generator_state_without_buffer(self)
                )
            return original(self, *args, **kwargs)

        return drawing

    for name in GENERATOR_DRAWS:
        wrap_builtin_method(plain, name, wrap_draw)

    def wrap_making(original: Any) -> Any:
        def default_rng(*args: Any, **kwargs: Any) -> Any:
            seed = args[0] if args else kwargs.get("seed")
            if seed is not None and not isinstance(seed, (plain, numpy_random.BitGenerator)):
                recorder.emit_host_event(
                    f.CREATE, "numpy.Generator", inputs=digest_numpy_seed(seed), only_at_user_code=True
                )
                args, kwargs = (pin_seed_if_asked(recorder, seed),), {}
            made = original(*args, **kwargs)
            if made is not seed:
                recorder.keep_generator_if_states_are_kept(made)
            return made

        return default_rng

    wrap_attribute(numpy_random, "default_rng", wrap_making)


def intercept_random_state_draws(recorder: Recorder, numpy_random: Any) -> None:
    """Watch seeds and draws of `RandomState`.

    `RandomState(3)` first makes a generator without a seed, then seeds it: only the seed counts. The global generator
    is one too: it is watched by the functions of `numpy.random`.
    """
    shared = find_numpy_global_generator()

    def wrap_draw(original: Any) -> Any:
        name = original.__name__

        def drawing(self: Any, *args: Any, **kwargs: Any) -> Any:
            if self is not shared and not recorder.thread.inside_samerun and not recorder.stopped:
                recorder.record_draw_at_user_line(
                    "numpy.Generator", name, lambda: digest_numpy_random_state(self.get_state(legacy=False))
                )
            return original(self, *args, **kwargs)

        return drawing

    for name in LEGACY_DRAWS:
        wrap_builtin_method(numpy_random.RandomState, name, wrap_draw)

    def wrap_making(original: Any) -> Any:
        def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
            seed = args[0] if args else kwargs.get("seed")
            if seed is None or isinstance(seed, numpy_random.BitGenerator):
                original(self, *args, **kwargs)
            else:
                recorder.emit_host_event(
                    f.CREATE, "numpy.Generator", inputs=digest_numpy_seed(seed), only_at_user_code=True
                )
                args, kwargs = (pin_seed_if_asked(recorder, seed),), {}
                recorder.thread.inside_samerun += 1
                try:
                    original(self, *args, **kwargs)
                finally:
                    recorder.thread.inside_samerun -= 1
            recorder.keep_generator_if_states_are_kept(self)

        return __init__

    wrap_builtin_method(numpy_random.RandomState, "__init__", wrap_making)


def digest_numpy_generator_state_without_buffer(generator: Any) -> bytes:
    held = generator.bit_generator.state.get("state")
    if not isinstance(held, dict):  # a bit generator of another library
        return xxh3_128_digest(repr(generator.bit_generator.state).encode())
    parts = [v.tobytes() if hasattr(v, "tobytes") else repr(v).encode() for v in held.values()]
    return xxh3_128_digest(b"".join(parts))


NUMPY_RANDOM = Interceptor("numpy-random", "numpy.random", pin_and_intercept_numpy_random)


CHECK_RANDOM_STATE = "check_random_state"


def intercept_check_random_state(recorder: Recorder, module: Any) -> None:
    """Watch a module's `check_random_state`."""
    shared = find_numpy_global_generator()

    def wrap_check(original: Any) -> Any:
        def check_random_state(*args: Any, **kwargs: Any) -> Any:
            given = original(*args, **kwargs)
            if given is shared:
                record_global_generator_use(recorder, shared)
            return given

        return check_random_state

    if shared is not None:
        wrap_attribute(module, CHECK_RANDOM_STATE, wrap_check)


def intercept_scipy_rvs(recorder: Recorder, module: Any) -> None:
    """SciPy's distributions take the generator when they are made, and draw from it in `rvs`."""
    shared = find_numpy_global_generator()

    def wrap_rvs(original: Any) -> Any:
        def rvs(self: Any, *args: Any, **kwargs: Any) -> Any:
            if kwargs.get("random_state") is None and getattr(self, "_random_state", None) is shared:
                record_global_generator_use(recorder, shared)
            return original(self, *args, **kwargs)

        return rvs

    if shared is not None:
        wrap_attribute(module.rv_generic, "rvs", wrap_rvs)


def record_global_generator_use(recorder: Recorder, generator: Any) -> None:
    if not recorder.thread.inside_samerun and not recorder.stopped:
        recorder.record_draw_at_user_line(
            "numpy", CHECK_RANDOM_STATE, lambda: digest_numpy_random_state(generator.get_state(legacy=False))
        )


SCIKIT_LEARN = Interceptor("numpy-in-scikit-learn", "sklearn.utils.validation", intercept_check_random_state)
SCIPY = Interceptor("numpy-in-scipy", "scipy._lib._util", intercept_check_random_state)
SCIPY_DISTRIBUTIONS = Interceptor("numpy-in-distributions", "scipy.stats._distn_infrastructure", intercept_scipy_rvs)

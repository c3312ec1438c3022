"""The kinds of generator that a stream holds: how each is made, reseeded, saved and restored."""

from __future__ import annotations

import functools
import random
import sys
import types
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from samerun.control.imported import find_imported_module

# A stream's generator that is pickled for a spawned process, as part of a dataset for one, arrives there as that
# process's own stream, not as a copy of the parent's: a copy would draw in every DataLoader worker, and in every
# epoch, what it drew in the others. Pickled or copied otherwise, it is a plain generator, position included.


class _TransferableGenerator:
    """A mixin for classes of generators."""

    home: tuple[Any, ...]
    """A function and its arguments, which give this generator in another process."""

    def __reduce__(self) -> Any:
        if is_pickling_for_spawn():
            return self.home
        if isinstance(self, random.Random):
            return random.Random, (), self.getstate()
        return super().__reduce__()


@functools.cache
def make_spawn_aware_generator_class(generator_class: type) -> Any:
    """Return a subclass whose instances arrive in spawned processes as those processes' own; set `home` on each."""
    return types.new_class(generator_class.__name__, (_TransferableGenerator, generator_class), {})


def is_pickling_for_spawn() -> bool:
    """Whether the present pickling is part of spawning a process."""
    context: Any = sys.modules.get("multiprocessing.context")
    return context is not None and context.get_spawning_popen() is not None


@dataclass(frozen=True)
class GeneratorKind:
    """One kind of generator.

    name: its name in states and in the derivation of its seed; never changed once released.
    make(n): a new one, of a transferable class, seeded with a whole number from 0 to 2**64-1.
    reseed(generator, n): start it again.
    get_state(generator): a plain copy of its state. set_state(generator, state): restore that.
    can_make(): whether one can be made without importing a library or starting a device.
    """

    name: str
    make: Callable[[int], Any]
    reseed: Callable[[Any, int], object]
    get_state: Callable[[Any], Any]
    set_state: Callable[[Any, Any], object]
    can_make: Callable[[], bool]


def _set_python_state(generator: random.Random, state: Any) -> None:
    version, words, kept_gauss = state  # lists, if it went through JSON
    if kept_gauss is not None and not isinstance(kept_gauss, float):
        raise TypeError("the normal number that gauss() keeps is not a float")
    if max(words) >> 32:  # Python would truncate it
        raise ValueError("it holds a number of more than 32 bits")
    generator.setstate((version, tuple(words), kept_gauss))


PYTHON = GeneratorKind(
    "python",
    make=lambda seed: make_spawn_aware_generator_class(random.Random)(seed),
    reseed=lambda generator, seed: generator.seed(seed),
    get_state=lambda generator: generator.getstate(),
    set_state=_set_python_state,
    can_make=lambda: True,
)


def _make_numpy_generator(seed: int) -> Any:
    import numpy

    # PCG64 by name: what default_rng() takes may change. Through default_rng(), so that a watched run sees it.
    generator = numpy.random.default_rng(numpy.random.PCG64(seed))
    kind: Any = type(generator)
    return make_spawn_aware_generator_class(kind)(generator.bit_generator)


def _reseed_numpy_generator(generator: Any, seed: int) -> None:
    generator.bit_generator.state = type(generator.bit_generator)(seed).state


def _set_numpy_state(generator: Any, state: Any) -> None:
    generator.bit_generator.state = state


NUMPY = GeneratorKind(
    "numpy",
    make=_make_numpy_generator,
    reseed=_reseed_numpy_generator,
    get_state=lambda generator: generator.bit_generator.state,
    set_state=_set_numpy_state,
    can_make=lambda: find_imported_module("numpy", "random") is not None,
)


def make_torch_generator_kind(device: str) -> GeneratorKind:
    """The kind of `torch.Generator` on `device`: "cpu", "cuda:0", ...

    Torch's CPU generator uses the low 32 bits of a seed.
    """
    backend = device.partition(":")[0]

    def make(seed: int) -> Any:
        import torch

        return make_spawn_aware_generator_class(torch.Generator)(device).manual_seed(seed)

    def can_make() -> bool:
        torch = find_imported_module("torch", "Generator")
        module = getattr(torch, backend, None)
        return torch is not None and (backend == "cpu" or bool(getattr(module, "is_initialized", lambda: False)()))

    return GeneratorKind(
        f"torch/{device}",
        make=make,
        reseed=lambda generator, seed: generator.manual_seed(seed),
        get_state=lambda generator: generator.get_state(),
        set_state=lambda generator, state: generator.set_state(state.cpu()),
        can_make=can_make,
    )


def find_generator_kind(kind_name: str) -> GeneratorKind | None:
    """Return the kind that a state calls by this name; None if there is none."""
    if kind_name.startswith("torch/") and len(kind_name) > len("torch/"):
        return make_torch_generator_kind(kind_name.removeprefix("torch/"))
    return {"python": PYTHON, "numpy": NUMPY}.get(kind_name)

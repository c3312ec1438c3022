"""The kinds of generator that a stream holds: how each is made, started, saved and put back."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from samerun.control.imported import find_imported
from samerun.control.travelling import travelling


@dataclass(frozen=True)
class Kind:
    """One kind of generator.

    name: its name in states and in the derivation of its seed; never changed once released.
    make(n): a new one, of a class that travels, started from a whole number from 0 to 2**64-1.
    start(generator, n): start it again.
    get_state(generator): a plain copy of its state. set_state(generator, state): put that back.
    usable(): whether one can be made without importing a library or starting a device.
    """

    name: str
    make: Callable[[int], Any]
    start: Callable[[Any, int], object]
    get_state: Callable[[Any], Any]
    set_state: Callable[[Any, Any], object]
    usable: Callable[[], bool]


def _set_python(generator: random.Random, state: Any) -> None:
    version, words, kept_gauss = state  # lists, if it went through JSON
    if kept_gauss is not None and not isinstance(kept_gauss, float):
        raise TypeError("the normal number that gauss() keeps is no float")
    if max(words) >> 32:  # Python would cut it
        raise ValueError("it holds a number of more than 32 bits")
    generator.setstate((version, tuple(words), kept_gauss))


PYTHON = Kind(
    "python",
    make=lambda seed: travelling(random.Random)(seed),
    start=lambda generator, seed: generator.seed(seed),
    get_state=lambda generator: generator.getstate(),
    set_state=_set_python,
    usable=lambda: True,
)


def _make_numpy(seed: int) -> Any:
    import numpy

    # PCG64 by name: what default_rng() takes may change. Through default_rng(), so that a watched run sees it.
    generator = numpy.random.default_rng(numpy.random.PCG64(seed))
    kind: Any = type(generator)
    return travelling(kind)(generator.bit_generator)


def _start_numpy(generator: Any, seed: int) -> None:
    generator.bit_generator.state = type(generator.bit_generator)(seed).state


def _set_numpy(generator: Any, state: Any) -> None:
    generator.bit_generator.state = state


NUMPY = Kind(
    "numpy",
    make=_make_numpy,
    start=_start_numpy,
    get_state=lambda generator: generator.bit_generator.state,
    set_state=_set_numpy,
    usable=lambda: find_imported("numpy", "random") is not None,
)


def torch_kind(device: str) -> Kind:
    """The kind of `torch.Generator` on `device`: "cpu", "cuda:0", ...

    Torch's CPU generator uses the low 32 bits of a seed.
    """
    backend = device.partition(":")[0]

    def make(seed: int) -> Any:
        import torch

        return travelling(torch.Generator)(device).manual_seed(seed)

    def usable() -> bool:
        torch = find_imported("torch", "Generator")
        module = getattr(torch, backend, None)
        return torch is not None and (backend == "cpu" or bool(getattr(module, "is_initialized", lambda: False)()))

    return Kind(
        f"torch/{device}",
        make=make,
        start=lambda generator, seed: generator.manual_seed(seed),
        get_state=lambda generator: generator.get_state(),
        set_state=lambda generator, state: generator.set_state(state.cpu()),
        usable=usable,
    )


def kind_named(name: str) -> Kind | None:
    """The kind that a state calls `name`; None if there is none."""
    if name.startswith("torch/") and len(name) > len("torch/"):
        return torch_kind(name.removeprefix("torch/"))
    return {"python": PYTHON, "numpy": NUMPY}.get(name)

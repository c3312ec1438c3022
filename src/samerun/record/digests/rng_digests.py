"""Digests of the states of Python's and NumPy's generators, as their libraries give them; NumPy's global one."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable
from typing import Any

from xxhash import xxh3_128_digest

OBJECT_HEADER = object.__basicsize__
"""Bytes in front of an object's own fields: the reference count changes without the state."""


def digest_python_state(state: Any) -> bytes:
    """Of what `random.getstate()` gives. `hash` of whole numbers does not depend on the hash seed."""
    version, words, gauss = state
    return xxh3_128_digest(f"{version}{hash(words)}{gauss}".encode())


def digest_numpy_state(state: dict[str, Any]) -> bytes:
    """Of what `numpy.random.get_state(legacy=False)` gives."""
    held = state["state"]
    key = held["key"].tobytes() if "key" in held else repr(held).encode()
    return xxh3_128_digest(key + repr((held.get("pos"), state.get("gauss"))).encode())


class MemoryCachedDigest:
    """A state's digest, computed again only where the memory that holds the state has changed.

    A library takes 40 to 150 microseconds to give a state of 2,500 bytes, which is a tenth of a small model's step;
    comparing those bytes takes two. Comparing more bytes than the state is harmless: the digest itself always comes
    from the library.
    """

    def __init__(self, held: list[Any], regions: list[tuple[int, int]], compute: Callable[[], bytes]) -> None:
        self.held = held
        """Objects in whose memory the regions lie."""
        self.regions = regions
        """(address, bytes)"""
        self.compute = compute
        self.seen: list[bytes] = []
        self.digest = b""

    def read(self) -> bytes:
        seen = self.copy_memory()
        if seen != self.seen:
            self.digest = self.compute()
            # Another thread may have drawn in between: then the bytes do not belong to the digest.
            self.seen = seen if seen == self.copy_memory() else []
        return self.digest

    def copy_memory(self) -> list[bytes]:
        return [ctypes.string_at(address, size) for address, size in self.regions]


def c_fields_region(instance: Any) -> tuple[int, int]:
    """(address, bytes) of the fields that an object of a type in C holds; CPython only."""
    return id(instance) + OBJECT_HEADER, type(instance).__basicsize__ - OBJECT_HEADER


def make_python_state_reader(module: Any) -> Callable[[], bytes]:
    """What digests the state of the `random` module's generator."""

    def compute() -> bytes:
        return digest_python_state(module.getstate())

    instance: Any = getattr(module, "_inst", None)
    if type(instance) is not module.Random or not hasattr(instance, "gauss_next"):
        return compute
    words = MemoryCachedDigest([instance], [c_fields_region(instance)], compute)
    gauss: Any = None

    def read() -> bytes:
        nonlocal gauss
        if instance.gauss_next is not gauss:  # an attribute in a dictionary: not among the fields in C
            gauss, words.seen = instance.gauss_next, []
        return words.read()

    return read


def make_numpy_state_reader(module: Any) -> Callable[[], bytes]:
    """What digests the state of `numpy.random`'s generator."""

    def compute() -> bytes:
        return digest_numpy_state(module.get_state(legacy=False))

    legacy = numpy_global_generator()
    twister = module.MT19937
    cached: MemoryCachedDigest | None = None

    def read() -> bytes:
        nonlocal cached
        bits = legacy._bit_generator
        if type(bits) is not twister:  # numpy.random.set_bit_generator
            return compute()
        if cached is None or cached.held[1] is not bits:
            state = bits.ctypes.state_address, 624 * 4 + 4  # the words and the position among them
            cached = MemoryCachedDigest([legacy, bits], [c_fields_region(legacy), state], compute)
        return cached.read()

    return read if hasattr(legacy, "_bit_generator") else compute


def numpy_global_generator() -> Any:
    """The object whose methods the functions of `numpy.random` are; None where it is not found."""
    return getattr(sys.modules.get("numpy.random.mtrand"), "_rand", None)

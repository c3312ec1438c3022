"""Digests of the states of Python's and NumPy's generators, as their libraries give them; NumPy's global one."""

from __future__ import annotations

import sys
from typing import Any

from xxhash import xxh3_128_digest


def python_state_digest(state: Any) -> bytes:
    """Of what `random.getstate()` gives. `hash` of whole numbers does not depend on the hash seed."""
    version, words, gauss = state
    return xxh3_128_digest(f"{version}{hash(words)}{gauss}".encode())


def numpy_state_digest(state: dict[str, Any]) -> bytes:
    """Of what `numpy.random.get_state(legacy=False)` gives."""
    held = state["state"]
    key = held["key"].tobytes() if "key" in held else repr(held).encode()
    return xxh3_128_digest(key + repr((held.get("pos"), state.get("gauss"))).encode())


def global_generator() -> Any:
    """The object whose methods the functions of `numpy.random` are; None where it is not found."""
    return getattr(sys.modules.get("numpy.random.mtrand"), "_rand", None)

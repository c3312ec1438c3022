"""The readers of generator states give what the libraries' own states give, whatever changed in between."""

from __future__ import annotations

import random
import types
from typing import Any

import numpy as np

from samerun.record.digests.state_digests import (
    digest_numpy_random_state,
    digest_python_random_state,
    make_numpy_random_state_digester,
    make_python_random_state_digester,
)


def test_readers_agree_after_every_kind_of_change() -> None:
    chosen = random.Random(5)
    read_python, read_numpy = make_python_random_state_digester(random), make_numpy_random_state_digester(np.random)
    python_state, numpy_state = random.getstate(), np.random.get_state()
    bits = np.random.get_bit_generator()
    changes: list[Any] = [
        random.random, lambda: random.gauss(0, 1), lambda: random.seed(3), lambda: random.setstate(python_state),
        np.random.normal, np.random.standard_normal, lambda: np.random.rand(700), lambda: np.random.seed(3),
        lambda: np.random.set_state(numpy_state), lambda: None,
    ]  # fmt: skip
    seen = set()
    try:
        for _ in range(200):
            chosen.choice(changes)()
            assert read_python() == digest_python_random_state(random.getstate())
            assert read_numpy() == digest_numpy_random_state(np.random.get_state(legacy=False))
            seen.add((read_python(), read_numpy()))
        for other in (np.random.PCG64(1), np.random.MT19937(1), bits):
            np.random.set_bit_generator(other)
            np.random.rand()
            assert read_numpy() == digest_numpy_random_state(np.random.get_state(legacy=False))
    finally:
        np.random.set_bit_generator(bits)
        np.random.set_state(numpy_state)
        random.setstate(python_state)
    assert len(seen) > 50


def test_an_unusual_generator_is_read_through_its_library() -> None:
    """A `random` of another build, without the fields that are known: slower, and right."""
    own = random.Random(1)
    module = types.SimpleNamespace(getstate=own.getstate, Random=random.Random)
    read = make_python_random_state_digester(module)
    before = read()
    own.random()
    assert read() == digest_python_random_state(own.getstate()) != before

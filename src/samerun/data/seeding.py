"""Start the global generators from keys by the libraries' own functions: the way that is always there.

`torch.manual_seed` formats stack traces and takes 200 us; the default generator's own method takes 1.5.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch

from samerun.control.rng.seeding import all_sources
from samerun.data.generator_memory import present_bit_generator
from samerun.data.keys import Keys


def seeded_one_by_one(keys: Keys, count: int) -> Iterator[None]:
    """Each turn of the loop starts the generators for the next of `count` samples."""
    python: Callable[[int], Any] = _nothing
    numpy: Callable[[int], Any] = _nothing
    manual_seed: Callable[[int], Any] = _nothing
    kept: Any = _Kept()
    if keys.python is not None:
        python, kept = _python_seed(), random._inst
    if keys.numpy is not None:
        numpy = _numpy_seed()
    if keys.torch is not None:
        manual_seed = torch.default_generator.manual_seed
    columns = (itertools.repeat(0, count) if column is None else column for column in keys)
    for key_p, key_n, key_t in zip(*columns, strict=False):
        python(key_p)
        kept.gauss_next = None
        numpy(key_n)
        manual_seed(key_t)
        yield


class _Kept:
    """In the place of Python's generator, where that is not keyed."""

    gauss_next: float | None = None


def _nothing(key: int) -> Any:
    pass


def _python_seed() -> Callable[[int], None]:
    """`random.seed` for whole numbers, but for the normal number that `gauss` keeps: the caller drops it."""
    generator: Any = random._inst
    starter: Callable[[int], None] = super(random.Random, generator).seed
    return starter


def _numpy_seed() -> Callable[[int], None]:
    if type(present_bit_generator()) is np.random.MT19937:
        starter: Callable[[int], None] = np.random.seed
        return starter
    source = next(one for one in all_sources() if one.name == "numpy")
    return source.seed

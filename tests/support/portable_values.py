"""Values and comparisons for the tests of portable numerics."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch

from samerun.numerics.kernels import library

NATIVE = [name for name in library.supported_levels() if name != "reference"]
SPECIAL = [0.0, -0.0, float("inf"), -float("inf"), float("nan"), 1e-45, -1e-45, 1.1754942e-38, 3.4028235e38, 1.0, -1.0]


@contextmanager
def at_level(name: str) -> Iterator[None]:
    library.force_level(name)
    try:
        yield
    finally:
        library.force_level(None)


def values(*shape: int, seed: int = 0, special: bool = False, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Normal values of NumPy's generator, whose bits do not depend on torch; `special`: some are odd."""
    generator = np.random.Generator(np.random.PCG64(seed))
    x = generator.standard_normal(shape)
    if special and x.size:
        flat = x.reshape(-1)
        places = generator.integers(0, flat.size, max(1, flat.size // 50))
        flat[places] = generator.choice(SPECIAL, places.size)
    return torch.from_numpy(np.asarray(x)).to(dtype)


def bits(x: torch.Tensor) -> np.ndarray:
    """The bits of every value; every NaN has the same."""
    x = torch.where(x.isnan(), torch.full_like(x, float("nan")), x) if x.is_floating_point() else x
    whole = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[x.element_size()]
    return x.contiguous().view(whole).numpy()


def assert_same_bits(got: torch.Tensor, want: torch.Tensor, hint: object = "") -> None:
    assert got.dtype == want.dtype, hint
    assert got.shape == want.shape, hint
    wrong = np.argwhere(bits(got) != bits(want))
    if len(wrong):
        where = tuple(wrong[0])
        raise AssertionError(
            f"{hint}: {len(wrong)} of {got.numel()} differ, first at {where}: "
            f"{float(got[where]).hex()} instead of {float(want[where]).hex()}"
        )

"""Random numbers from Philox4x32-10: the same on any machine, for any number of threads.

`seed`: the 64-bit key. `position`: the number of the draw in its stream, which the caller counts. `device`: where the
numbers are made; they are the same everywhere.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from samerun.base.errors import SamerunError
from samerun.numerics.kernels import library
from samerun.numerics.reference import random as reference

Shape = Sequence[int]
Device = torch.device | str

_random = library.declare_function("samerun_random", "viuupl")
_randint = library.declare_function("samerun_randint", "vuulupl")
_words64 = library.declare_function("samerun_words64", "vuupl")
_block_words = library.declare_function("samerun_block_words", "vuuppl")


def _require_key(operator: str, seed: int, position: int) -> None:
    for name, value in (("seed", seed), ("position", position)):
        if not 0 <= value < 1 << 64:
            raise SamerunError(f"{operator}({name}={value}): it is a whole number from 0 to {2**64 - 1}.")


def _draw_floats(normal: bool, shape: Shape, seed: int, position: int, device: Device) -> torch.Tensor:
    n = math.prod(shape)
    out = torch.empty(tuple(shape), dtype=torch.float32, device=device)
    if not library.uses_native_kernels(out):
        found = reference.normal(seed, position, n) if normal else reference.uniform(seed, position, n)
        return torch.from_numpy(found).reshape(tuple(shape))
    _random.for_device_of(out)(normal, seed, position, out.data_ptr(), n)
    return out


def uniform(shape: Shape, seed: int, position: int, device: Device = "cpu") -> torch.Tensor:
    """float32 in [0, 1): (word >> 8) * 2^-24, word i of the draw for value i."""
    _require_key("uniform", seed, position)
    return _draw_floats(False, shape, seed, position, device)


def normal(shape: Shape, seed: int, position: int, device: Device = "cpu") -> torch.Tensor:
    """float32 of mean 0 and deviation 1: Box and Muller on pairs of words; see `reference.random.normal`."""
    _require_key("normal", seed, position)
    return _draw_floats(True, shape, seed, position, device)


def bernoulli(
    shape: Shape, probability: float | torch.Tensor, seed: int, position: int, device: Device = "cpu"
) -> torch.Tensor:
    """bool: uniform < probability, which is rounded to float32 and may be a tensor that broadcasts to `shape`."""
    _require_key("bernoulli", seed, position)
    found = uniform(shape, seed, position, device)
    return found < torch.as_tensor(probability, dtype=torch.float32, device=found.device)


def randint(low: int, high: int, shape: Shape, seed: int, position: int, device: Device = "cpu") -> torch.Tensor:
    """int64 from low to high - 1, each equally likely. Raises SamerunError where high <= low or either is too large."""
    _require_key("randint", seed, position)
    if not -(1 << 63) <= low < high <= 1 << 63:
        raise SamerunError(f"randint({low}, {high}): needs -2^63 <= low < high <= 2^63.")
    n = math.prod(shape)
    out = torch.empty(tuple(shape), dtype=torch.int64, device=device)
    if not library.uses_native_kernels(out):
        return torch.from_numpy(reference.randint(low, high, seed, position, n)).reshape(tuple(shape))
    if high - low == 1 << 64:
        _words64.for_device_of(out)(seed, position, out.data_ptr(), n)
        return out ^ torch.iinfo(torch.int64).min
    _randint.for_device_of(out)(seed, position, low, high - low, out.data_ptr(), n)
    return out


def randperm(n: int, seed: int, position: int, device: Device = "cpu") -> torch.Tensor:
    """int64: 0..n-1 in the order of their random 64-bit words (unsigned); of equal words the lower number first."""
    _require_key("randperm", seed, position)
    words = torch.empty(n, dtype=torch.int64, device=device)
    if not library.uses_native_kernels(words):
        return torch.from_numpy(reference.randperm(n, seed, position))
    _words64.for_device_of(words)(seed, position, words.data_ptr(), n)
    return torch.argsort(words ^ torch.iinfo(torch.int64).min, stable=True)


def block_words(blocks: torch.Tensor, seed: int, position: int) -> torch.Tensor:
    """int64 [n, 2]: the bits of each of the n blocks (int64, 1-D), two words of which the first is the lower."""
    _require_key("block_words", seed, position)
    out = torch.empty(blocks.numel(), 2, dtype=torch.int64, device=blocks.device)
    if not library.uses_native_kernels(out):
        return torch.from_numpy(reference.block_words(seed, position, blocks.numpy()))
    wanted = blocks.contiguous()
    _block_words.for_device_of(out)(seed, position, wanted.data_ptr(), out.data_ptr(), wanted.numel())
    return out

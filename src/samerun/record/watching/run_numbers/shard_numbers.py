"""The share of one rank in the numbers of a sharded tensor (DTensor): the shares of all ranks add up to them.

Each rank writes a list as long as that of the whole tensor, with zeros for what lies on other ranks, so that no rank
needs the others' elements. Imports torch.
"""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass
from typing import Any

import torch

from samerun.record.config import KEPT_WHOLE, PIECES
from samerun.record.digests.digest import is_readable
from samerun.record.digests.torch_guards import HiddenFromProgram
from samerun.record.watching.run_numbers.tensor_numbers import take_all_or_sampled_numbers


@dataclass(frozen=True)
class TakenNumbers:
    """The numbers of a tensor; `is_share`: this rank's share of them."""

    values: list[float]
    is_share: bool


def take_elements_or_samples_or_rank_share(tensor: Any) -> TakenNumbers | None:
    """None for a tensor that cannot be read."""
    if is_readable(tensor):
        return TakenNumbers(take_all_or_sampled_numbers(tensor), False)
    shard = find_shard(tensor)
    return TakenNumbers(take_share(shard), True) if shard is not None else None


@dataclass(frozen=True)
class Shard:
    """What a rank holds of a sharded tensor. counts: no rank with the same elements counts them before this one."""

    local: Any
    offset: tuple[int, ...]
    shape: tuple[int, ...]
    counts: bool


def find_local_tensor(tensor: Any) -> Any:
    """The readable tensor that a parameter is, or of which this rank has its share; None where there is none."""
    if is_readable(tensor):
        return tensor
    shard = find_shard(tensor)
    return shard.local if shard is not None else None


def find_shard(tensor: Any) -> Shard | None:
    """None for what is no DTensor, or one of which the ranks hold sums that are yet to be added up."""
    kinds: Any = sys.modules.get("torch.distributed.tensor")
    if kinds is None or not isinstance(tensor, kinds.DTensor):
        return None
    try:
        from torch.distributed.tensor._utils import compute_local_shape_and_global_offset

        held: Any = tensor
        spec, local = held._spec, held._local_tensor
        mesh, placements = spec.mesh, spec.placements
        here = mesh.get_coordinate()
        if here is None or any(each.is_partial() for each in placements) or not is_readable(local):
            return None
        size, offset = compute_local_shape_and_global_offset(spec.shape, mesh, placements)
        if tuple(size) != tuple(local.shape):
            return None
        counts = all(here[at] == 0 for at, each in enumerate(placements) if each.is_replicate())
        return Shard(local, tuple(offset), tuple(spec.shape), counts)
    except (AttributeError, ImportError, RuntimeError, TypeError, ValueError):
        return None  # a release that keeps them elsewhere


def take_share(shard: Shard) -> list[float]:
    """What the elements of a shard add to what `take_all_or_sampled_numbers` gives of the whole tensor."""
    with HiddenFromProgram():
        count = math.prod(shard.shape)
        every, size = -(-count // PIECES), max(1, count // PIECES)
        samples = count if count <= KEPT_WHOLE else -(-count // every)
        taken = torch.zeros(samples if count <= KEPT_WHOLE else samples + PIECES + 1, dtype=torch.float64)
        if shard.counts and shard.local.numel():
            flat = shard.local.detach().to("cpu", torch.float64).reshape(-1)
            index = find_flat_indices(shard)
            if count <= KEPT_WHOLE:
                taken[index] = flat
            else:
                sampled = index % every == 0
                taken[index[sampled] // every] = flat[sampled]
                taken.index_add_(0, samples + (index // size).clamp(max=PIECES), flat)
        return list(taken.tolist())


def find_flat_indices(shard: Shard) -> Any:
    """Where each element of a shard lies in the whole tensor, counted in the order of its indices."""
    index: Any = torch.zeros((), dtype=torch.int64)
    for at, length in enumerate(shard.local.shape):
        stride = math.prod(shard.shape[at + 1 :])
        index = index.unsqueeze(-1) + (torch.arange(length) + shard.offset[at]) * stride
    return index.reshape(-1)

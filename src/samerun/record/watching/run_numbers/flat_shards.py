"""What a rank holds of parameters that FullyShardedDataParallel (FSDP1) has flattened and cut up. Imports torch.

Such a parameter is one piece of a flat list on each rank, and whole where there is one rank only. With
`use_orig_params` the pieces are those of the model's own parameters, without it of all of a module's at once.
"""

from __future__ import annotations

import sys
from typing import Any, NamedTuple

import torch

from samerun.record.digests.digest import is_readable
from samerun.record.digests.state_digests import named_modules
from samerun.record.digests.torch_guards import HiddenFromProgram
from samerun.record.watching.run_numbers.shard_numbers import (
    Shard,
    TakenNumbers,
    take_elements_or_samples_or_rank_share,
    take_share,
)


class FlatRange(NamedTuple):
    """Where the piece of this rank begins in the flat list, and how long that is.

    counts: no rank with the same elements counts them before this one.
    """

    begin: int
    length: int
    counts: bool


FlatRanges = dict[int, FlatRange | None]
"""By the id of each parameter that is cut up: the range that this rank holds, or None where it cannot be told."""


def find_flat_ranges(models: list[Any]) -> FlatRanges:
    ranges: FlatRanges = {}
    wrappers: Any = sys.modules.get("torch.distributed.fsdp.fully_sharded_data_parallel")
    if wrappers is not None:
        for model in models:
            for _, module in named_modules(model):
                if issubclass(type(module), wrappers.FullyShardedDataParallel) and module._handle is not None:
                    add_ranges_of_handle(ranges, module._handle, vars(module).get("_inter_node_pg"))
    return ranges


def add_ranges_of_handle(ranges: FlatRanges, handle: Any, replicas: Any) -> None:
    """replicas: of a hybrid strategy, the group of ranks that hold the same shards as this one."""
    if not handle.uses_sharded_strategy:
        return
    flat = handle.flat_param
    counts = replicas is None or replicas.rank() == 0
    copies = 1 if replicas is None else replicas.size()
    # The shares of all ranks are added up: ranks that belong to other groups hold something else.
    spans_all_ranks = handle.world_size * copies == torch.distributed.get_world_size()
    if flat._params is None:
        at = FlatRange(handle.rank * flat._sharded_size.numel(), flat._unpadded_unsharded_size.numel(), counts)
        ranges[id(flat)] = at if spans_all_ranks else None
        return
    pieces = zip(flat._params, flat._shapes, flat._contiguities, flat._shard_param_infos, strict=True)
    for parameter, shape, is_contiguous, info in pieces:
        # One that is not contiguous is flattened in the order of memory, not in that of its indices.
        is_known = spans_all_ranks and is_contiguous
        ranges[id(parameter)] = FlatRange(info.intra_param_start_idx or 0, shape.numel(), counts) if is_known else None


def take_numbers_of_shard_or_whole(parameter: Any, tensor: Any, ranges: FlatRanges) -> TakenNumbers | None:
    """Of a parameter, or of its gradient; None for what cannot be read."""
    if id(parameter) not in ranges:
        return take_elements_or_samples_or_rank_share(tensor)
    flat_range = ranges[id(parameter)]
    if flat_range is None or not is_readable(tensor):
        return None
    begin, length, counts = flat_range
    with HiddenFromProgram():
        local = tensor.detach().reshape(-1)[: max(0, length - begin)]  # behind the end of the list is padding
        return TakenNumbers(take_share(Shard(local, (begin,), (length,), counts)), True)

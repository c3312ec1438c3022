"""The shares of what FSDP1 flattens and cuts up, on the ranks of a process group that communicates nothing."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, ShardingStrategy
from torch.testing._internal.distributed.fake_pg import FakeStore

from samerun.record.digests.state_digests import named_parameters
from samerun.record.watching.run_numbers.flat_shards import find_flat_ranges, take_numbers_of_shard_or_whole
from samerun.record.watching.run_numbers.shard_numbers import TakenNumbers
from samerun.record.watching.run_numbers.tensor_numbers import strip_wrapper_names

OUT_OF_ORDER = "3.weight"
"""In channels_last: it is flattened in the order of memory."""


def take_numbers_on_rank(rank: int, ranks: int, kind: str) -> dict[str, TakenNumbers | None]:
    dist.init_process_group("fake", store=FakeStore(), rank=rank, world_size=ranks)
    try:
        torch.manual_seed(0)
        layers: list[Any] = [nn.Linear(5, 40), nn.Linear(40, 31), nn.Linear(1, 1), nn.Conv2d(2, 3, 3), nn.Linear(3, 3)]
        options: dict[str, Any] = {"use_orig_params": kind != "flat", "device_id": torch.device("cpu")}
        if kind != "flat":
            layers[1].bias.requires_grad_(False)
            layers[3].to(memory_format=torch.channels_last)
        if kind == "hybrid" and ranks > 1:
            options["device_mesh"] = init_device_mesh("cpu", (2, ranks // 2))
            options["sharding_strategy"] = ShardingStrategy.HYBRID_SHARD
        if kind == "some ranks" and ranks > 1:
            options["process_group"] = dist.new_group([rank, (rank + 1) % ranks])
        layers[1] = FullyShardedDataParallel(layers[1], **options)
        model = FullyShardedDataParallel(nn.Sequential(*layers), **options)
        ranges = find_flat_ranges([model])
        return {
            strip_wrapper_names(name): take_numbers_of_shard_or_whole(parameter, parameter, ranges)
            for name, parameter in named_parameters(model)
        }
    finally:
        dist.destroy_process_group()


@pytest.mark.filterwarnings("ignore:FSDP is switching to use `NO_SHARD`", "ignore:.*FullyShardedDataParallel")
@pytest.mark.parametrize(
    ("kind", "ranks"), [("orig", 2), ("orig", 3), ("hybrid", 4), ("flat", 3), ("flat", 5), ("some ranks", 3)]
)
def test_shares_of_all_ranks_add_up_to_what_one_rank_has(kind: str, ranks: int) -> None:
    whole = take_numbers_on_rank(0, 1, kind)
    taken = [take_numbers_on_rank(rank, ranks, kind) for rank in range(ranks)]
    unread = {name for name in whole if None in [each[name] for each in taken]}
    assert unread == {"flat": set(), "some ranks": set(whole)}.get(kind, {OUT_OF_ORDER})
    for name in whole.keys() - unread:
        expected, shares = whole[name], [each[name] for each in taken]
        assert expected is not None and not expected.is_share
        assert all(share is not None and share.is_share for share in shares)
        assert np.allclose(np.sum([share.values for share in shares if share], axis=0), expected.values, rtol=1e-12)

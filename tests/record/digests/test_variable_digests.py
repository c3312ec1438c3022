"""Digests of what variables of a program hold."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.debug import CommDebugMode
from torch.testing._internal.distributed.fake_pg import FakeStore
from samerun.record.digests.variable_digests import digest_variable

dist.init_process_group("fake", store=FakeStore(), rank=1, world_size=3)
model = nn.Sequential(nn.Linear(4, 5), nn.Linear(5, 1))
fully_shard(model)
with CommDebugMode() as watched:
    before = digest_variable(model)
    with torch.no_grad():
        model[0].weight.to_local().add_(1)
    assert digest_variable(model) != before
assert watched.get_total_counts() == 0, watched.get_comm_counts()
"""


def test_a_sharded_model_is_digested_without_the_other_ranks() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr

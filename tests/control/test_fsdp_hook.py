"""`samerun.fsdp_comm_hook` and `clip_grad_norm_`: the same on any number of ranks, and the mistakes one can make."""

from __future__ import annotations

import pytest
import torch
from fresh_process import fresh
from test_ddp_hook import digest

import samerun
from samerun.base.errors import SamerunError


@pytest.mark.exhaustive
def test_one_two_and_four_ranks_train_like_distributed_data_parallel() -> None:
    one = digest(1, "hook")
    assert digest(1, "fsdp") == one == digest(2, "fsdp") == digest(4, "fsdp") == digest(4, "hook")
    assert digest(4, "fsdp_plain") != one, "the test would show nothing"


@pytest.mark.slow
def test_two_sharded_ranks_train_like_one() -> None:
    assert digest(2, "fsdp") == digest(1, "hook")


MISTAKES = """
import json, tempfile, torch, samerun
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

dist.init_process_group("gloo", store=dist.FileStore(tempfile.mkdtemp() + "/store", 1), rank=0, world_size=1)
torch.manual_seed(0)
inputs = torch.randn(8, 6)


class Two(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(6, 6), nn.Linear(6, 6)])

    def forward(self, x, both):
        return (self.layers[0](x) + (self.layers[1](x) if both else 0)).float().pow(2).sum()


said = []


def train(counts, policy=MixedPrecisionPolicy(), skip=None, hook=True):
    torch.manual_seed(1)
    model = Two()
    for layer in model.layers:
        fully_shard(layer, mp_policy=policy)
    model = fully_shard(model, mp_policy=policy)
    if hook:
        samerun.fsdp_comm_hook(model)
    for count in counts:
        for number in range(count):
            model.set_requires_gradient_sync(number == count - 1)
            (model(inputs[number : number + 1], number != skip) / count).backward()
    return [p.grad.full_tensor() if p.grad is not None else None for p in model.parameters()]


def refused(call):
    try:
        call()
    except Exception as error:
        said.append(f"{type(error).__name__} {error.args[0]}")


def same(a, b):
    return all(torch.equal(x, y) for x, y in zip(a, b, strict=True))


half = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
said.append(["one", same(train([1]), train([1], hook=False))])
said.append(["two", same(train([2]), train([2], hook=False))])
said.append(["half", same(train([2], half), train([2], half, hook=False)), str(train([4], half)[0].dtype)])
tree, line = train([8]), train([8], hook=False)
said.append(["eight", same(tree, line), all(map(torch.allclose, tree, line))])
refused(lambda: train([3]))
refused(lambda: train([4], skip=3))
refused(lambda: train([4], skip=1))
refused(lambda: samerun.fsdp_comm_hook(nn.Linear(2, 2)))
mesh = init_device_mesh("cpu", (1, 1), mesh_dim_names=("replicate", "shard"))
refused(lambda: samerun.fsdp_comm_hook(fully_shard(nn.Linear(2, 2), mesh=mesh)))
dist.destroy_process_group()
print(json.dumps(said))
"""


@pytest.mark.slow
def test_sums_over_microbatches_and_mistakes() -> None:
    lines = fresh(MISTAKES)
    assert lines[:4] == [
        ["one", True],
        ["two", True],
        ["half", True, "torch.float32"],
        ["eight", False, True],
    ]
    assert lines[4:6] == [
        "SamerunError fsdp_comm_hook: a step of 3 microbatches on a rank.",
        "SamerunError fsdp_comm_hook: parameters got gradients from 3 and 4 microbatches of one step.",
    ]
    assert "3 and 4 microbatches" in lines[6] or "a step of 3 microbatches" in lines[6]
    assert lines[7].startswith("SamerunError fsdp_comm_hook(Linear): it takes a model that fully_shard")
    assert "replicated over one dimension of the mesh (HSDP)" in lines[8]


def test_the_norm_of_gradients_that_are_not_sharded_is_that_of_torch() -> None:
    torch.manual_seed(0)
    parameters = [torch.nn.Parameter(torch.randn(shape)) for shape in ((5, 7), (3,), (2, 2, 9))]
    unused = torch.nn.Parameter(torch.zeros(2))
    for limit, kind in ((0.1, 2.0), (1e6, 2.0), (0.1, float("inf")), (0.5, 1.0)):
        mine, theirs = [], []
        for clip, found in ((samerun.clip_grad_norm_, mine), (torch.nn.utils.clip_grad_norm_, theirs)):
            for number, parameter in enumerate(parameters):
                parameter.grad = torch.randn(parameter.shape, generator=torch.Generator().manual_seed(number))
            found.append(clip([*parameters, unused], limit, kind))
            found += [parameter.grad for parameter in parameters]
        assert all(torch.equal(a, b) for a, b in zip(mine, theirs, strict=True)), (limit, kind)
    assert samerun.clip_grad_norm_(unused, 1.0) == 0


def test_a_model_that_is_not_sharded_is_refused() -> None:
    with pytest.raises(SamerunError, match=r"fsdp_comm_hook\(Linear\)"):
        samerun.fsdp_comm_hook(torch.nn.Linear(2, 2))

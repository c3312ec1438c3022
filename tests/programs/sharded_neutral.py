"""Training with sharded parameters, on one rank or more.

WRONG is empty, or what is another function on several ranks; SHARD is how the parameters are sharded: fully_shard, or
FullyShardedDataParallel with the model's own parameters (orig) or flat ones (flat).
"""

import os

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp import fully_shard

SHARD = os.environ.get("SHARD", "fully_shard")
WRONG = os.environ.get("WRONG", "")
dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
mesh = init_device_mesh("cpu", (world,))
model = nn.Sequential(nn.Linear(5, 40), nn.GELU(), nn.Linear(40, 31), nn.GELU(), nn.Linear(31, 3))
if SHARD == "fully_shard":
    fully_shard(model[2], mesh=mesh)
    fully_shard(model, mesh=mesh)
else:
    model[2] = FSDP(model[2], use_orig_params=SHARD == "orig", device_id=torch.device("cpu"))
    model = FSDP(model, use_orig_params=SHARD == "orig", device_id=torch.device("cpu"))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
batches = torch.Generator().manual_seed(1)
for step in range(3):
    x, y = torch.randn(16, 5, generator=batches), torch.randint(3, (16,), generator=batches)
    loss = F.cross_entropy(model(x.chunk(world)[rank]), y.chunk(world)[rank])
    optimizer.zero_grad()
    loss.backward()
    if WRONG == "clip":
        gradients = [p.grad for p in model.parameters() if p.grad is not None]
        total = sum((g.to_local() if SHARD == "fully_shard" else g).square().sum() for g in gradients).sqrt()
        for gradient in gradients:
            gradient.mul_(0.1 / total)  # each rank divides by the norm of its own shards
    optimizer.step()
dist.destroy_process_group()

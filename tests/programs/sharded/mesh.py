"""Four ranks as a mesh of data and tensor parallelism: fully_shard over the one, parallelize_module over the other."""

import os
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

torch.set_num_threads(1)
dist.init_process_group("gloo")
mesh = init_device_mesh("cpu", (dist.get_world_size() // 2, 2), mesh_dim_names=("dp", "tp"))
torch.manual_seed(0)
model = nn.Sequential(*(nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 16)) for _ in range(2)))
for block in model:
    parallelize_module(block, mesh["tp"], {"0": ColwiseParallel(), "2": RowwiseParallel()})
    fully_shard(block, mesh=mesh["dp"])
fully_shard(model, mesh=mesh["dp"])
opt = torch.optim.AdamW(model.parameters(), lr=0.01)
share = mesh["dp"].get_local_rank()
if "entropy" in sys.argv:
    share = [int.from_bytes(os.urandom(2), "little")]  # WRONG entropy
    dist.broadcast_object_list(share)
    share = share[0] + mesh["dp"].get_local_rank()
data = torch.Generator().manual_seed(share)
for step in range(3):
    x = torch.randn(8, 16, generator=data)
    opt.zero_grad()
    model(x).pow(2).mean().backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    opt.step()
full = [p.full_tensor() for p in model.parameters()]
if dist.get_rank() == 0:
    print("RESULT", sum(p.double().sum().item() for p in full))
dist.destroy_process_group()

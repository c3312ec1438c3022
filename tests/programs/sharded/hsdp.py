"""Four ranks as a mesh of replicas and shards (HSDP), with checkpointed blocks and a clipped norm.

With `listing`: the order of the files of a folder decides which samples come first.
"""

import os
import sys
import tempfile
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.utils.checkpoint import checkpoint


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(16, 48), nn.Linear(48, 16)

    def forward(self, x):
        return x + checkpoint(lambda h: self.down(self.up(h).relu()), x, use_reentrant=False)


torch.set_num_threads(1)
dist.init_process_group("gloo")
mesh = init_device_mesh("cpu", (2, dist.get_world_size() // 2), mesh_dim_names=("replicate", "shard"))
torch.manual_seed(0)
model = nn.Sequential(Block(), Block(), nn.Linear(16, 1))
for block in model[:2]:
    fully_shard(block, mesh=mesh)
fully_shard(model, mesh=mesh)
opt = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
samples = torch.randn(96, 16, generator=torch.Generator().manual_seed(1))
rank = dist.get_rank()
if "listing" in sys.argv:
    with tempfile.TemporaryDirectory() as folder:
        for number in range(96):
            (Path(folder) / f"{number}.txt").write_text(str(number), encoding="utf-8")
        samples = samples[[int(name.split(".")[0]) for name in os.listdir(folder)]]  # WRONG listing
for step in range(3):
    first = 32 * step + 8 * rank
    x = samples[first : first + 8]
    opt.zero_grad()
    loss = (model(x) - x.sum(1, keepdim=True)).pow(2).mean()
    loss.backward()
    norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    opt.step()
full = [p.full_tensor() for p in model.parameters()]
if rank == 0:
    print("RESULT", norm.full_tensor().item(), sum(p.double().sum().item() for p in full))
dist.destroy_process_group()

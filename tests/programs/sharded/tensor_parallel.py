"""parallelize_module with sequence parallelism.

With `dropout`: the ranks' masks in a replicated region differ. With `rank`: only rank 0 is seeded, whose weights all
take; the other's dropout is not.
"""

import os
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    RowwiseParallel,
    SequenceParallel,
    loss_parallel,
    parallelize_module,
)
from torch.distributed.tensor import Replicate, Shard


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(16)
        self.up = nn.Linear(16, 64)
        self.down = nn.Linear(64, 16)
        self.out = nn.Linear(16, 8)
        self.generator = torch.Generator().manual_seed(5)

    def forward(self, x):
        x = x + self.down(self.up(self.norm(x)).relu())
        if "dropout" in sys.argv or "rank" in sys.argv:
            mask = torch.rand(x.shape) > 0.1
        else:
            mask = torch.rand(x.shape, generator=self.generator) > 0.1
        return self.out(x * mask / 0.9)


torch.set_num_threads(1)
mesh = init_device_mesh("cpu", (int(os.environ["WORLD_SIZE"]),), mesh_dim_names=("tp",))
if dist.get_rank() == 0 or "rank" not in sys.argv:
    torch.manual_seed(0)  # WRONG rank
model = Model()
plan = {
    "norm": PrepareModuleInput(input_layouts=(Replicate(),), desired_input_layouts=(Shard(1),)),
    "up": ColwiseParallel(input_layouts=Shard(1)),
    "down": RowwiseParallel(output_layouts=Replicate()),
    "out": ColwiseParallel(output_layouts=Shard(-1), use_local_output=False),
}
parallelize_module(model, mesh, plan)
parallelize_module(model, mesh, {"norm": SequenceParallel(use_local_output=True)})
opt = torch.optim.AdamW(model.parameters(), lr=0.01, foreach=True)
if "dropout" in sys.argv:
    torch.manual_seed(int.from_bytes(os.urandom(4), "little"))  # WRONG dropout
data = torch.Generator().manual_seed(3)
for step in range(3):
    x = torch.randn(2, 8, 16, generator=data)
    y = torch.randint(0, 8, (16,), generator=data)
    opt.zero_grad()
    with loss_parallel():
        loss = nn.functional.cross_entropy(model(x).flatten(0, 1), y)
        loss.backward()
    opt.step()
full = [p.full_tensor() if hasattr(p, "full_tensor") else p for p in model.parameters()]
if dist.get_rank() == 0:
    print("RESULT", loss.full_tensor().item(), sum(p.double().sum().item() for p in full))
dist.destroy_process_group()

"""DistributedDataParallel over shards. With `queue`: a rank takes the next shard when it is ready for one."""

import datetime
import os
import sys

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

torch.set_num_threads(1)
dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=120))
rank, size = dist.get_rank(), dist.get_world_size()
store = dist.distributed_c10d._get_default_store()
torch.manual_seed(5)
table = torch.randn(24, 6, 10)
model = DistributedDataParallel(torch.nn.Sequential(torch.nn.Linear(10, 20), torch.nn.Tanh(), torch.nn.Linear(20, 1)))
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)


def next_shard(step):
    if "queue" in sys.argv:
        return (store.add("next shard", 1) - 1) % len(table)  # WRONG queue
    return (step * size + rank) % len(table)


for step in range(6):
    x = table[next_shard(step)]
    optimizer.zero_grad()
    loss = (model(x) - x.mean(1, keepdim=True)).abs().mean()
    loss.backward()
    optimizer.step()
if rank == 0:
    print("RESULT", sum(p.double().sum().item() for p in model.parameters()))
dist.barrier()
dist.destroy_process_group()

"""DistributedDataParallel with no_sync and accumulation. With `time`: a rank's share of the data depends on a clock."""

import contextlib
import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

torch.set_num_threads(1)
dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(0)
data = TensorDataset(torch.randn(128, 12), torch.randn(128, 1))
model = nn.parallel.DistributedDataParallel(nn.Sequential(nn.Linear(12, 48), nn.BatchNorm1d(48), nn.ReLU(), nn.Linear(48, 1)))
opt = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
sampler = DistributedSampler(data, seed=1)
if "time" in sys.argv:
    first = [time.time_ns() % 1000]  # WRONG time
    dist.broadcast_object_list(first)
    sampler = DistributedSampler(data, seed=first[0])
for epoch in range(2):
    sampler.set_epoch(epoch)
    for at, (x, y) in enumerate(DataLoader(data, batch_size=8, sampler=sampler)):
        last = at % 4 == 3
        with contextlib.nullcontext() if last else model.no_sync():
            loss = (model(x) - y).pow(2).mean() / 4
            loss.backward()
        if last:
            opt.step()
            opt.zero_grad()
if rank == 0:
    print("RESULT", sum(p.double().sum().item() for p in model.parameters()))
dist.destroy_process_group()

"""DTensor: products, dropout, redistribution between all layouts. With `time`: the shards' rows depend on a clock."""

import sys
import time

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor

torch.set_num_threads(1)
dist.init_process_group("gloo")
mesh = init_device_mesh("cpu", (dist.get_world_size(),))
torch.manual_seed(0)
weight = distribute_tensor(torch.randn(16, 16), mesh, [Shard(0)]).requires_grad_()
table = torch.randn(64, 16)
for step in range(3):
    start = 8 * step
    if "time" in sys.argv:
        start = int(time.time() * 1000) % 32  # WRONG time
    x = distribute_tensor(table[start : start + 16], mesh, [Shard(1)])
    y = x @ weight
    y = y.redistribute(mesh, [Replicate()]).redistribute(mesh, [Shard(1)])
    y = torch.nn.functional.dropout(y, 0.2).redistribute(mesh, [Shard(0)])
    part = DTensor.from_local(y.to_local().sum(0), mesh, [Partial()])
    loss = part.redistribute(mesh, [Replicate()]).pow(2).sum()
    loss.backward()
    with torch.no_grad():
        weight -= 0.001 * weight.grad
        weight.grad = None
result = weight.full_tensor()
if dist.get_rank() == 0:
    print("RESULT", loss.full_tensor().item(), result.double().sum().item())
dist.destroy_process_group()

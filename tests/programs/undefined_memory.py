"""Memory that holds no value yet, used as correct programs do. READS: that one line reads what nobody wrote."""
import os
import sys
import tempfile

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
from torch.distributed.fsdp import fully_shard

READS = sys.argv[1] if len(sys.argv) > 1 else ""
store = dist.FileStore(os.path.join(tempfile.mkdtemp(), "store"), 1)
dist.init_process_group("gloo", store=store, rank=0, world_size=1)
torch.manual_seed(0)
x = torch.randn(4, 6)

dist.barrier()
gathered = torch.empty(4, 6)
work = dist.all_gather_into_tensor(gathered, x, async_op=True)
work.wait()
parts = [torch.empty_like(x)]
dist.all_gather(parts, x)
received = functional.all_gather_tensor_autograd(x.clone().requires_grad_(), 0, dist.group.WORLD)
reduced = functional.all_reduce(x.clone(), "sum", dist.group.WORLD)
total = gathered.sum() + parts[0].sum() + received.sum() + reduced.sum()
if READS == "collective":
    larger = torch.empty(8, 6)
    dist.all_gather_into_tensor(larger[:4], x)
    total = total + larger.sum()

memory = torch.empty(10, 6)  # a replay buffer: only what was put in is taken out
for row in range(4):
    memory[row] = x[row]
total = total + memory[torch.randint(4, (3,))].sum() + memory[:4].double().sum()
if READS == "buffer":
    total = total + memory[torch.tensor([1, 7])].relu().sum()

derivative = torch.func.linearize(torch.sin, x)[1]  # written down with tangents that nobody wrote
file = os.path.join(tempfile.mkdtemp(), "memory.bin")  # another path in each run
total = total + derivative(x).sum() + torch.from_file(file, shared=True, size=8).fill_(2).square().sum()

kept = torch.empty(3, 6).clone().to(torch.float64)  # moved about, and then written
if READS == "copy":
    total = total + kept.exp().sum()
kept.copy_(x[:3])
total = total + kept.sum()

model = fully_shard(torch.nn.Linear(6, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(2):
    (model(x).pow(2).mean() + total.detach() * 1e-3).backward()
    optimizer.step()
    optimizer.zero_grad()
print(float(total) > -1e30)
dist.destroy_process_group()

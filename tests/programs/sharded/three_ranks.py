"""Three ranks, of which two also form a group. With `unseeded`: rank 2's noise, which reaches the others by all_reduce."""

import sys

import torch
import torch.distributed as dist

torch.set_num_threads(1)
dist.init_process_group("gloo")
rank = dist.get_rank()
pair = dist.new_group([1, 2])
torch.manual_seed(0)
weight = torch.randn(16, 16, requires_grad=True)
optimizer = torch.optim.SGD([weight], lr=0.01)
data = torch.Generator().manual_seed(rank)
noise = torch.Generator().manual_seed(10 + rank)
if "unseeded" in sys.argv and rank == 2:
    noise.seed()  # WRONG unseeded
for step in range(4):
    x = torch.randn(8, 16, generator=data)
    if rank > 0:
        dist.all_reduce(x, group=pair)
    if step >= 2:
        x = x + 0.1 * torch.randn(x.shape, generator=noise)
    optimizer.zero_grad()
    (x @ weight).tanh().pow(2).sum().backward()
    dist.all_reduce(weight.grad)
    optimizer.step()
if rank == 0:
    print("RESULT", weight.double().sum().item())
dist.barrier()
dist.destroy_process_group()

"""Guarded steps of ddp or fsdp. With a number: rank 1 flips a bit in the result of that operator, once, in step 3."""

import os
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.utils._python_dispatch import TorchDispatchMode

import samerun


class Flip(TorchDispatchMode):
    def __init__(self, at):
        super().__init__()
        self.left, self.armed = at, False

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        if self.armed and "aten.mm" in str(func):
            if self.left == 0:
                out.view(torch.int32)[0, 0] ^= 1 << 20
            self.left -= 1
        return out


torch.set_num_threads(1)
dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Dropout(0.1), nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 1))
if sys.argv[1] == "fsdp":
    fully_shard(model[3])
    model = fully_shard(model)
else:
    model = nn.parallel.DistributedDataParallel(model)
opt = torch.optim.AdamW(model.parameters(), lr=0.01)
guard = samerun.guard(model, opt, every=1)
flip = Flip(int(sys.argv[2]) if len(sys.argv) > 2 else -1)
torch.manual_seed(rank)


def step(x):
    flip.armed = rank == 1 and guard.steps == 3
    opt.zero_grad()
    loss = model(x).pow(2).mean()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    opt.step()
    flip.armed = False
    return loss


for _ in range(6):
    try:
        with flip:
            guard.step(step, torch.randn(8, 8))
    except samerun.WrongResultError as error:
        os.write(1, f"RANK {rank}: {error.message}\n".encode())  # one write: the ranks share a pipe
full = [p.full_tensor() if hasattr(p, "full_tensor") else p for p in model.parameters()]
total = sum(p.double().sum().item() for p in full)
os.write(1, f"RESULT {rank} {guard.checked} {len(guard.records)} {total}\n".encode())
dist.destroy_process_group()
# Not through the interpreter's end: the mesh keeps gloo's threads, and one that drops a tensor then aborts, rarely.
os._exit(0)

"""Train with microbatches of one global batch spread over the ranks there are; rank 0 prints its parameters' digest.

torchrun --nproc-per-node N ddp_ranks.py {plain,hook,portable,fsdp,fsdp_plain} [bucket_cap_mb] [resume]
"""

import contextlib
import copy
import os
import sys

import torch
import torch.distributed as dist

from torch.distributed.fsdp import fully_shard

import samerun
from samerun.record.digests.digest import digest

MICROBATCHES, SIZE, STEPS = 4, 8, 6
torch.set_num_threads(1)


def make(bucket):
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Conv2d(1, 8, 3),
        torch.nn.ReLU(),
        torch.nn.Flatten(),
        torch.nn.Linear(8 * 36, 32),
        torch.nn.Tanh(),
        torch.nn.Linear(32, 10),
    )
    return model


def shard(model, hook):
    for layer in model:
        if list(layer.parameters()):
            fully_shard(layer)
    fully_shard(model)
    if hook:
        samerun.fsdp_comm_hook(model)
    return model


def wrapped(model, hook, bucket):
    if sys.argv[1].startswith("fsdp"):
        return shard(model, hook)
    ddp = torch.nn.parallel.DistributedDataParallel(model, bucket_cap_mb=bucket)
    if hook:
        samerun.ddp_comm_hook(ddp)
    return ddp


def main():
    hook = sys.argv[1] in ("hook", "portable", "fsdp")
    bucket = float(sys.argv[2]) if len(sys.argv) > 2 else 25
    resume = len(sys.argv) > 3
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    each = MICROBATCHES // world
    model = make(bucket)
    ddp = wrapped(model, hook, bucket)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)  # fully_shard makes other parameters
    data, norms = torch.Generator().manual_seed(1), []
    for step in range(STEPS):
        if resume and step == STEPS // 2:
            ddp = wrapped(copy.deepcopy(model), hook, bucket)
            state, model = optimizer.state_dict(), ddp.module
            optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
            optimizer.load_state_dict(state)
        x = torch.randn(MICROBATCHES, SIZE, 1, 8, 8, generator=data)
        y = torch.randint(0, 10, (MICROBATCHES, SIZE), generator=data)
        optimizer.zero_grad()
        for number in range(each):
            at = rank * each + number

            def backward(at=at):
                (torch.nn.functional.cross_entropy(ddp(x[at]), y[at]) / each).backward()

            if sys.argv[1].startswith("fsdp"):
                ddp.set_requires_gradient_sync(number == each - 1)
                backward()
            elif number < each - 1:
                with ddp.no_sync():
                    backward()
            else:
                backward()
        norms.append(samerun.clip_grad_norm_(model.parameters(), 0.5).item())
        optimizer.step()
    parts = [digest(p.full_tensor() if hasattr(p, "full_tensor") else p).hex() for p in model.parameters()]
    if rank == 0:
        print("digest", "".join(parts)[:64], norms, flush=True)
    dist.destroy_process_group()


with samerun.portable() if sys.argv[1] == "portable" else contextlib.nullcontext():
    main()
# Not through the interpreter's end: the mesh keeps gloo's threads, and one that drops a tensor then aborts, rarely.
os._exit(0)

"""Train with microbatches of one global batch spread over the ranks there are; rank 0 prints its parameters' digest.

torchrun --nproc-per-node N ddp_ranks.py {plain,hook,portable} [bucket_cap_mb] [resume]
"""

import contextlib
import copy
import sys

import torch
import torch.distributed as dist

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
    return model, torch.optim.AdamW(model.parameters(), lr=1e-2)


def wrapped(model, hook, bucket):
    ddp = torch.nn.parallel.DistributedDataParallel(model, bucket_cap_mb=bucket)
    if hook:
        samerun.ddp_comm_hook(ddp)
    return ddp


def main():
    hook = sys.argv[1] in ("hook", "portable")
    bucket = float(sys.argv[2]) if len(sys.argv) > 2 else 25
    resume = len(sys.argv) > 3
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    each = MICROBATCHES // world
    model, optimizer = make(bucket)
    ddp = wrapped(model, hook, bucket)
    data = torch.Generator().manual_seed(1)
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

            if number < each - 1:
                with ddp.no_sync():
                    backward()
            else:
                backward()
        optimizer.step()
    parts = [digest(p).hex() for p in model.parameters()]
    if rank == 0:
        print("digest", "".join(parts)[:64], flush=True)
    dist.destroy_process_group()


with samerun.portable() if sys.argv[1] == "portable" else contextlib.nullcontext():
    main()

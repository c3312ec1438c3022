"""DDP with hooks that compress gradients: the rest of their work runs in callbacks, in whichever thread completes a future.

With `dither`: what a callback gets is rounded by chance. With `arrival`: parts are added as their futures complete.
"""

import os
import random
import sys
import time

import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook


def to_bfloat16(_, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    compressed = bucket.buffer().to(torch.bfloat16).div_(dist.get_world_size())
    reduced = dist.all_reduce(compressed, async_op=True).get_future()
    return reduced.then(lambda done: round_into(bucket.buffer(), done.value()[0]))


def round_into(buffer, compressed):
    buffer.copy_(compressed)
    if "dither" in sys.argv:
        chance = torch.Generator().manual_seed(time.time_ns())  # WRONG dither
        buffer.add_(torch.rand(buffer.shape, generator=chance), alpha=1e-6)
    return buffer


def in_parts(_, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    """Each rank's gradient in four parts, which all ranks gather and add."""
    buffer, total, futures = bucket.buffer(), [], []
    mine = list((buffer / dist.get_world_size()).tensor_split(4))
    groups = part_groups if "arrival" in sys.argv else part_groups[:1] * 4
    for number, (part, group) in enumerate(zip(mine, groups, strict=True)):
        if "arrival" in sys.argv:
            time.sleep(random.SystemRandom().random() * 0.002)
        reduced = dist.all_reduce(part, async_op=True, group=group).get_future()
        futures.append(reduced.then(lambda done, at=number: total.append((at, done.value()[0]))))  # WRONG arrival

    def put_together(_):
        scale = torch.zeros(())
        for number, part in total if "arrival" in sys.argv else sorted(total, key=lambda each: each[0]):
            scale = scale * 0.9 + part.norm()
            buffer.tensor_split(4)[number].copy_(part)
        return buffer.div_(1 + scale)

    return torch.futures.collect_all(futures).then(put_together)


torch.set_num_threads(1)
dist.init_process_group("gloo")
rank = dist.get_rank()
part_groups = [dist.new_group() for _ in range(4)]
data = torch.Generator().manual_seed(rank)
power = powerSGD_hook.PowerSGDState(None, 2, start_powerSGD_iter=2, min_compression_rate=1, random_seed=3)
hooks = ((None, to_bfloat16), (power, powerSGD_hook.powerSGD_hook), (None, default_hooks.fp16_compress_hook),
         (None, in_parts))  # fmt: skip
for state, hook in hooks:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.GELU(), torch.nn.Linear(64, 8))
    model = torch.nn.parallel.DistributedDataParallel(model, bucket_cap_mb=0.005)
    model.register_comm_hook(state, hook)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for step in range(5):
        model(torch.randn(16, 32, generator=data)).pow(2).mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    if rank == 0:
        print(hook.__name__, sum(each.double().sum() for each in model.parameters()).item(), flush=True)
dist.barrier()
sys.stdout.flush()
os._exit(0)

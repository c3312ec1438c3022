"""Collectives with async_op=True and point-to-point messages. With `arrival`: messages are added as they come."""

import os
import random
import sys
import tempfile
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp


def gather_and_add(value):
    rank, size = dist.get_rank(), dist.get_world_size()
    total = value.clone()
    if rank != 0:
        if "arrival" in sys.argv:
            time.sleep(random.SystemRandom().random() * 0.1)
        dist.send(value, 0)
        return total
    for source in range(1, size):
        part = torch.empty_like(value)
        if "arrival" in sys.argv:
            dist.recv(part)  # WRONG arrival
        else:
            dist.recv(part, source)
        total = total + part
    return total


def work(rank, size, path):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", store=dist.FileStore(path, size), rank=rank, world_size=size)
    torch.manual_seed(0)
    weight = torch.randn(64, 64, requires_grad=True)
    data = torch.Generator().manual_seed(rank)
    for step in range(4):
        x = torch.randn(16, 64, generator=data)
        (x @ weight).relu().pow(2).mean().backward()
        grad = weight.grad
        head = grad[:48].clone()
        first = dist.all_reduce(grad[:32], async_op=True)
        second = dist.all_reduce(grad[32:], async_op=True)
        rows = torch.empty(48 // size, 64)
        if "race" in sys.argv:
            head = grad[:48].clone()  # WRONG race
        third = dist.reduce_scatter_tensor(rows, head, async_op=True)
        parts = [torch.empty(16, 64) for _ in range(size)]
        fourth = dist.all_gather(parts, x, async_op=True)
        for handle in (first, second, third, fourth):
            handle.wait()
        to, source = (rank + 1) % size, (rank - 1) % size
        received = torch.empty_like(rows)
        jobs = dist.batch_isend_irecv(
            [dist.P2POp(dist.isend, rows, to), dist.P2POp(dist.irecv, received, source)]
        )
        for job in jobs:
            job.wait()
        future = dist.all_reduce(received, async_op=True).get_future().then(lambda done: done.value()[0] * 0.5)
        halved = future.wait()
        total = gather_and_add(halved * torch.rand(rows.shape, generator=data))
        dist.broadcast(total, 0)
        with torch.no_grad():
            weight -= 0.01 * grad + 1e-4 * (total.sum() + torch.stack(parts).mean())
        weight.grad = None
    if rank == 0:
        print("RESULT", weight.double().sum().item())
    dist.destroy_process_group()


if __name__ == "__main__":
    size = 3 if "arrival" in sys.argv else 2
    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(work, (size, os.path.join(folder, "store")), nprocs=size)

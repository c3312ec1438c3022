"""Tensor parallelism with `samerun.tp_comm_hook`: rank 0 prints digests of losses, gradients and parameters.

tensor_parallel_blocks.py RANKS [plain] [sequence] [BLOCKS]: without the hook; with a layout that is refused.
"""

import os
import sys
import tempfile

import torch
import torch.distributed as dist
import torch.multiprocessing
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, SequenceParallel, parallelize_module

import samerun
from samerun.record.digests.digest import digest


class Block(nn.Module):
    def __init__(self, bias):
        super().__init__()
        self.norm = nn.LayerNorm(24)
        self.up, self.down = nn.Linear(24, 80, bias=bias), nn.Linear(80, 24, bias=bias)

    def forward(self, x):
        return x + self.down(nn.functional.gelu(self.up(self.norm(x))))


def run(rank, world, store, words):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", store=dist.FileStore(store, world), rank=rank, world_size=world)
    mesh = init_device_mesh("cpu", (world,))
    torch.manual_seed(0)
    model = nn.Sequential(nn.Embedding(50, 24), Block(True), Block(False), nn.Linear(24, 8))
    for block in model[1:3]:
        plan = {"up": ColwiseParallel(), "down": RowwiseParallel()}
        if "sequence" in words:
            plan["norm"] = SequenceParallel()
        parallelize_module(block, mesh, plan)
    parallelize_module(model, mesh, {"0": ColwiseParallel()} if "sequence" in words else {})
    try:
        if "plain" not in words:
            blocks = [int(word) for word in words if word.isdigit()]
            samerun.tp_comm_hook(model, *blocks)
    except samerun.SamerunError as error:
        if rank == 0:
            print("REFUSED", error.message, flush=True)
        dist.destroy_process_group()
        return
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    data = torch.Generator().manual_seed(1)
    seen = []
    for _ in range(3):
        ids = torch.randint(0, 50, (5, 7), generator=data)
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(ids).flatten(0, 1), ids.flatten() % 8)
        loss.backward()
        optimizer.step()
        seen += [loss.detach(), *(p.grad for p in model.parameters()), *(p.detach() for p in model.parameters())]
    whole = [each.full_tensor() if hasattr(each, "full_tensor") else each for each in seen]
    if rank == 0:
        print("DIGEST", digest(torch.cat([each.double().reshape(-1) for each in whole])).hex(), loss.item(), flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    with tempfile.TemporaryDirectory() as rendezvous:
        arguments = (int(sys.argv[1]), f"{rendezvous}/store", sys.argv[2:])
        torch.multiprocessing.spawn(run, arguments, nprocs=int(sys.argv[1]))

# {"switches": [["", "--ranks 2"]], "wrong": true}
"""Ranks that the program starts itself add up gradients of losses that are means already."""

import argparse
import os
import tempfile

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn.functional as F
from torch import nn

CLEAN = os.environ.get("CLEAN") == "1"


def train(rank, ranks, store):
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=ranks)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 12), nn.Tanh(), nn.Linear(12, 3))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(3):
        generator = torch.Generator().manual_seed(step)
        x, y = torch.randn(12, 6, generator=generator), torch.randint(3, (12,), generator=generator)
        optimizer.zero_grad()
        F.cross_entropy(model(x.chunk(ranks)[rank]), y.chunk(ranks)[rank]).backward()
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad)  # WRONG
            if CLEAN:
                parameter.grad /= ranks
        optimizer.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--ranks", type=int, default=1)
    ranks = parser.parse_args().ranks
    with tempfile.TemporaryDirectory() as folder:
        store = os.path.join(folder, "store")
        if ranks == 1:
            train(0, 1, store)
        else:
            mp.start_processes(train, (ranks, store), nprocs=ranks, start_method="fork")

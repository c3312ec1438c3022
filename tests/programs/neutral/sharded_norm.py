# {"switches": [["", "--shards 2"]], "wrong": true}
"""Each rank moves the parameters that it owns, by gradients over their common norm: of its own ones alone."""

import argparse
import os
import tempfile

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn

CLEAN = os.environ.get("CLEAN") == "1"


class NormalisedSGD:
    """Not an optimizer of torch's. The gradient of a parameter is summed where its owner is, who sends the result."""

    def __init__(self, parameters, rank, shards, lr=0.05):
        self.parameters, self.rank, self.shards, self.lr = list(parameters), rank, shards, lr

    def owner(self, number):
        return number % self.shards

    @torch.no_grad()
    def step(self):
        if self.shards > 1:
            for number, parameter in enumerate(self.parameters):
                dist.reduce(parameter.grad, dst=self.owner(number))
                parameter.grad /= self.shards
        mine = [p for number, p in enumerate(self.parameters) if self.owner(number) == self.rank]
        squares = torch.stack([p.grad.square().sum() for p in mine]).sum()
        if self.shards > 1 and CLEAN:
            dist.all_reduce(squares)
        for parameter in mine:
            parameter -= self.lr * parameter.grad / squares.sqrt()  # WRONG
        if self.shards > 1:
            for number, parameter in enumerate(self.parameters):
                dist.broadcast(parameter, src=self.owner(number))


def train(rank, shards, store):
    if shards > 1:
        dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=shards)
    torch.manual_seed(5)
    model = nn.Sequential(nn.Linear(6, 10), nn.SiLU(), nn.Linear(10, 2))
    optimizer = NormalisedSGD(model.parameters(), rank, shards)
    for step in range(4):
        x = torch.randn(8, 6, generator=torch.Generator().manual_seed(step))
        y = torch.stack([x.sum(1), x.prod(1)], 1)
        model.zero_grad()
        (model(x[rank::shards]) - y[rank::shards]).square().mean().backward()
        optimizer.step()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--shards", type=int, default=1)
    shards = parser.parse_args().shards
    if shards == 1:
        train(0, 1, "")
    else:
        with tempfile.TemporaryDirectory() as folder:
            mp.start_processes(train, (shards, f"{folder}/store"), nprocs=shards, start_method="fork")

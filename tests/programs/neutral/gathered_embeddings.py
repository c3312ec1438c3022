# {"switches": [["", "--ranks 2"]], "wrong": true}
"""A triplet loss mines negatives among the embeddings of all ranks, and those of others come without gradients."""

import argparse
import os
import tempfile

import torch
import torch.distributed as dist
import torch.distributed.nn.functional
import torch.multiprocessing as mp
from torch import nn

CLEAN = os.environ.get("CLEAN") == "1"


def gather(mine):
    if dist.get_world_size() == 1:
        return mine
    if CLEAN:
        return torch.cat(dist.nn.functional.all_gather(mine))
    everybody = mine.new_empty(dist.get_world_size() * len(mine), mine.shape[1])
    dist.all_gather_into_tensor(everybody, mine)  # WRONG
    return everybody


def train(rank, ranks, store):
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=ranks)
    torch.manual_seed(0)
    encoder = nn.Sequential(nn.Linear(5, 16), nn.Tanh(), nn.Linear(16, 4))
    optimizer = torch.optim.SGD(encoder.parameters(), lr=0.1)
    for step in range(3):
        x = torch.randn(16, 5, generator=torch.Generator().manual_seed(step))
        near = (x + 0.1).chunk(ranks)[rank]
        anchors, positives = encoder(x.chunk(ranks)[rank]), encoder(near)
        own = torch.arange(len(anchors)) + rank * len(anchors)
        distances = torch.cdist(anchors, gather(positives))
        others = distances.index_put((torch.arange(len(own)), own), torch.tensor(9.0)).min(1).values
        loss = (distances.gather(1, own[:, None])[:, 0] - others + 2.0).relu().mean()
        optimizer.zero_grad()
        loss.backward()
        for parameter in encoder.parameters():
            dist.all_reduce(parameter.grad)
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

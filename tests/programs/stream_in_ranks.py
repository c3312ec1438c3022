"""Two ranks, spawned; each prints as JSON what it and two spawned DataLoader workers draw from two streams."""

import json
import sys

import torch
import torch.distributed as dist

import samerun


class Draws(torch.utils.data.Dataset):
    def __init__(self, stream):
        self.stream = stream

    def __len__(self):
        return 2

    def __getitem__(self, index):
        return self.stream.python.random()


def workers(stream):
    loader = torch.utils.data.DataLoader(
        Draws(stream),
        batch_size=None,
        num_workers=2,
        multiprocessing_context="spawn",
        generator=torch.Generator().manual_seed(0),
    )
    return list(loader)


def rank(index, path):
    dist.init_process_group("gloo", init_method=f"file://{path}", rank=index, world_size=2)
    samerun.seed_everything(0)
    same, own = samerun.stream("a"), samerun.stream("a", rank="distinct")
    drawn = [same.python.random(), own.python.random(), workers(same), workers(own)]
    dist.barrier()
    dist.destroy_process_group()
    print(json.dumps(drawn), flush=True)


if __name__ == "__main__":
    torch.multiprocessing.spawn(rank, args=(sys.argv[1],), nprocs=2)

"""Each rank prints, as JSON, the samples of its batches, and saves a checkpoint together with the others.

    torchrun --nproc-per-node W gloo_batches.py CHECKPOINT
"""

import json
import os
import sys

import torch
import torch.distributed as dist
from loader_datasets import Drawing

import samerun
from samerun.data import DataLoader


def main(checkpoint):
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    samerun.seed_everything(1)
    rank, world = dist.get_rank(), dist.get_world_size()
    loader = DataLoader(Drawing(40), 8 // world, shuffle=True, num_workers=1, shard=True)
    own = samerun.stream("noise", rank="distinct").python
    found = []
    for step, batch in enumerate(loader):
        found.append([[value.hex() for value in row] for row in batch.tolist()])
        own.random()
        if step == 2:
            samerun.checkpoint.save(checkpoint, loader=loader, extra=step)
            break
    expected = own.random()
    rest = DataLoader(Drawing(40), 8 // world, shuffle=True, shard=True)
    assert samerun.checkpoint.load(checkpoint, loader=rest) == 2
    assert own.random() == expected
    found += [[[value.hex() for value in row] for row in batch.tolist()] for batch in rest]
    gathered = [None] * world
    dist.all_gather_object(gathered, found)
    if rank == 0:
        print(json.dumps(gathered))
    dist.destroy_process_group()


if __name__ == "__main__":
    os.environ["TORCH_CPP_LOG_LEVEL"] = "ERROR"
    main(sys.argv[1])

"""Save with `samerun.checkpoint.save`, or load on as many ranks or more; each rank says what it draws next, or the error.

plain_resume.py RANKS FILE {save,load} [reseed]
"""

import os
import sys
import tempfile

import torch
import torch.distributed as dist
import torch.multiprocessing

import samerun


def run(rank, world, store, path, what, words):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", store=dist.FileStore(store, world), rank=rank, world_size=world)
    samerun.seed_everything(1)
    shared = samerun.stream("noise").python
    shared.random()
    torch.manual_seed(100 + rank)  # each rank drops out other elements
    if what == "save":
        samerun.checkpoint.save(path)
    try:
        if what == "load":
            samerun.checkpoint.load(path, rng="reseed" if "reseed" in words else True)
        said = f"{torch.rand(1).item()} {shared.random()}"
    except samerun.CheckpointError as error:
        said = f"REFUSED {error.message}"
    told = [None] * world
    dist.all_gather_object(told, said)
    if rank == 0:
        print(*told, sep="\n", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    with tempfile.TemporaryDirectory() as rendezvous:
        arguments = (int(sys.argv[1]), f"{rendezvous}/store", sys.argv[2], sys.argv[3], sys.argv[4:])
        torch.multiprocessing.spawn(run, arguments, nprocs=int(sys.argv[1]))

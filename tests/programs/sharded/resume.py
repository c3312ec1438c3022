"""Train a sharded model; save in the middle, and go on from there in another process, on as many ranks or others.

resume.py RANKS FOLDER {straight,save,load} [hook] [dropout] [norm] [async] [reseed]: rank 0 prints a digest of parameters, optimizer and draws.
"""

import os
import sys
import tempfile

import torch
import torch.distributed as dist
import torch.multiprocessing
from torch import nn
from torch.distributed.fsdp import fully_shard

import samerun
from samerun.record.digests.digest import digest

MICROBATCHES, SIZE, STEPS, SAVED = 4, 4, 6, 3


def run(rank, world, store, folder, what, words):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", store=dist.FileStore(store, world), rank=rank, world_size=world)
    samerun.seed_everything(1)
    hidden = [nn.Dropout(0.2)] if "dropout" in words else [nn.BatchNorm1d(17)] if "norm" in words else []
    model = nn.Sequential(nn.Linear(6, 17), *hidden, nn.Tanh(), nn.Linear(17, 3))
    fully_shard(model[0])
    fully_shard(model)
    if "hook" in words:
        samerun.fsdp_comm_hook(model)
    if "dropout" in words:
        torch.manual_seed(100 + rank)  # of its own on each rank
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2, gamma=0.9)
    noise, own = samerun.stream("noise"), samerun.stream("own", rank="distinct")
    data = torch.utils.data.TensorDataset(torch.randn(100, 6, generator=torch.Generator().manual_seed(5)))
    loader = samerun.data.DataLoader(data, batch_size=SIZE * MICROBATCHES, shuffle=True)  # each rank takes its rows
    parts = {"model": model, "optimizer": optimizer, "scheduler": scheduler, "loader": loader}
    first = 0
    if what == "load":
        rng = "reseed" if "reseed" in words else True
        try:
            first = samerun.checkpoint.load_sharded(folder, rng=rng, **parts)["step"]
        except samerun.CheckpointError as error:
            if rank == 0:
                print("REFUSED", error.message, flush=True)
            dist.destroy_process_group()
            return
    batches = iter(loader)
    drawn, pending = 0.0, None
    for step in range(first, STEPS):
        (batch,) = next(batches)
        optimizer.zero_grad()
        microbatches = batch.chunk(world)[rank].split(SIZE)
        for number, x in enumerate(microbatches):
            model.set_requires_gradient_sync(number == len(microbatches) - 1)
            (model(x).pow(2).mean() / len(microbatches)).backward()
        model.set_requires_gradient_sync(True)
        samerun.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()
        scheduler.step()
        drawn = torch.rand(1, generator=noise.torch).item()
        if "dropout" in words:
            drawn += own.python.random() + torch.rand(1).item()
        if what == "save" and step == SAVED - 1:
            wait = "async" not in words
            pending = samerun.checkpoint.save_sharded(folder, extra={"step": SAVED}, wait=wait, **parts)
    if pending is not None:
        pending.wait()
    states = [value for state in optimizer.state.values() for value in state.values()]
    whole = [each.full_tensor() if hasattr(each, "full_tensor") else each for each in [*model.parameters(), *states]]
    whole += list(model.buffers())
    mine = digest(torch.cat([each.detach().double().reshape(-1) for each in whole])).hex()[:16]
    told = [None] * world
    dist.all_gather_object(told, [mine, drawn, optimizer.param_groups[0]["lr"]])
    if rank == 0:
        print("DIGEST", told[:1] if "norm" not in words and "dropout" not in words else told, flush=True)
    dist.barrier()
    dist.destroy_process_group()
    os._exit(0)  # a mesh keeps gloo's threads, and one that drops a tensor at the interpreter's end aborts it


if __name__ == "__main__":
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    with tempfile.TemporaryDirectory() as rendezvous:
        arguments = (int(sys.argv[1]), f"{rendezvous}/store", sys.argv[2], sys.argv[3], sys.argv[4:])
        torch.multiprocessing.spawn(run, arguments, nprocs=int(sys.argv[1]))

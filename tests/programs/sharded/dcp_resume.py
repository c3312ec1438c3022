"""FSDP2, saved with torch.distributed.checkpoint after every step, each rank with its generator.

With `rng`: all go on with the generator of rank 0. CKPT names the folder; what lies there is gone on from.
"""

import os
import sys

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.fsdp import fully_shard

torch.set_num_threads(1)
dist.init_process_group("gloo")
rank = dist.get_rank()
folder = os.environ.get("CKPT")
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(12, 40), nn.ReLU(), nn.Dropout(0.25), nn.Linear(40, 1))
fully_shard(model[0])
fully_shard(model)
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
torch.manual_seed(100 + rank)


def collect(step):
    model_state, optim_state = get_state_dict(model, optimizer)
    return {"model": model_state, "optim": optim_state, "step": step, f"rng{rank}": torch.get_rng_state()}


first = 0
if folder and os.path.exists(os.path.join(folder, "last")):
    with open(os.path.join(folder, "last")) as file:
        name = file.read()
    state = collect(0)
    dcp.load(state, checkpoint_id=os.path.join(folder, name))
    set_state_dict(model, optimizer, model_state_dict=state["model"], optim_state_dict=state["optim"])
    first = state["step"]
    own = state[f"rng{rank}"]
    if "rng" in sys.argv:
        shared = [own]
        dist.broadcast_object_list(shared, 0)
        own = shared[0]
    torch.set_rng_state(own)  # WRONG rng

for step in range(first, 6):
    x = torch.randn(8, 12)
    optimizer.zero_grad()
    loss = (model(x) - x.sum(1, keepdim=True)).pow(2).mean()
    loss.backward()
    optimizer.step()
    if not folder:
        continue
    dcp.save(collect(step + 1), checkpoint_id=os.path.join(folder, f"step{step + 1}"))
    if rank == 0:
        with open(os.path.join(folder, "new"), "w") as file:
            file.write(f"step{step + 1}")
        os.replace(os.path.join(folder, "new"), os.path.join(folder, "last"))
    dist.barrier()
    if os.environ.get("STOP_AT") == str(step + 1):
        break
full = [p.full_tensor() for p in model.parameters()]
if rank == 0:
    print("RESULT", sum(p.double().sum().item() for p in full))
dist.barrier()
dist.destroy_process_group()

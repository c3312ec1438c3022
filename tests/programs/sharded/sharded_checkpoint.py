"""Save and load shards with torch.distributed.checkpoint, at once and behind. With `rng`: all take rank 0's generator."""

import os
import sys
import tempfile

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.fsdp import fully_shard

torch.set_num_threads(1)
dist.init_process_group("gloo")
rank = dist.get_rank()


def build():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Dropout(0.2), nn.Linear(64, 1))
    fully_shard(model[0])
    fully_shard(model)
    return model, torch.optim.AdamW(model.parameters(), lr=0.01)


def train(model, opt, steps):
    for _ in range(steps):
        x = torch.randn(8, 16)
        opt.zero_grad()
        loss = (model(x) - x.sum(1, keepdim=True)).pow(2).mean()
        loss.backward()
        opt.step()
    return loss


model, opt = build()
if "seed" in sys.argv:
    torch.manual_seed(os.getpid())  # WRONG seed
else:
    torch.manual_seed(rank)
train(model, opt, 2)
folder = [tempfile.mkdtemp() if rank == 0 else None]
dist.broadcast_object_list(folder)
model_state, optim_state = get_state_dict(model, opt)
state = {"model": model_state, "optim": optim_state, f"rng{rank}": torch.get_rng_state()}
dcp.save(state, checkpoint_id=os.path.join(folder[0], "now"))
behind = dcp.async_save(state, checkpoint_id=os.path.join(folder[0], "behind"), process_group=dist.new_group())
train(model, opt, 1)
behind.result()

for name in ("now", "behind"):
    model, opt = build()
    model_state, optim_state = get_state_dict(model, opt)
    state = {"model": model_state, "optim": optim_state, f"rng{rank}": torch.get_rng_state()}
    dcp.load(state, checkpoint_id=os.path.join(folder[0], name))
    set_state_dict(model, opt, model_state_dict=state["model"], optim_state_dict=state["optim"])
    torch.set_rng_state(state[f"rng{rank}"])
    loss = train(model, opt, 2)
full = [p.full_tensor() for p in model.parameters()]
if rank == 0:
    print("RESULT", loss.item(), sum(p.double().sum().item() for p in full))
dist.destroy_process_group()

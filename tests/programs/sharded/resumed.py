"""Shards are saved every second step, and a training goes on from them. With `rng`: all ranks take rank 0's generator."""

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
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Dropout(0.2), nn.Linear(64, 1))
fully_shard(model[0])
fully_shard(model)
opt = torch.optim.AdamW(model.parameters(), lr=0.01)
torch.manual_seed(rank)


def collect():
    model_state, optim_state = get_state_dict(model, opt)
    name = "rng" if "rng" in sys.argv else f"rng{rank}"
    return {"model": model_state, "optim": optim_state, name: torch.get_rng_state(), "step": torch.tensor(step)}


step = 0
saved = [number for number in range(0, 13, 2) if os.path.exists(f"checkpoint-{number}/.metadata")]
if saved:
    state = collect()
    dcp.load(state, checkpoint_id=f"checkpoint-{saved[-1]}")
    set_state_dict(model, opt, model_state_dict=state["model"], optim_state_dict=state["optim"])
    torch.set_rng_state(state["rng" if "rng" in sys.argv else f"rng{rank}"])  # WRONG rng
    step = int(state["step"])
while step < 12:
    x = torch.randn(8, 16)
    opt.zero_grad()
    (model(x) - x.sum(1, keepdim=True)).pow(2).mean().backward()
    opt.step()
    step += 1
    if step % 2 == 0:
        dcp.save(collect(), checkpoint_id=f"checkpoint-{step}")
full = [p.full_tensor() for p in model.parameters()]
if rank == 0:
    print("RESULT", sum(p.double().sum().item() for p in full))
dist.destroy_process_group()

"""Pipeline stages by GPipe and by 1F1B. With `unseeded`: the second stage's weights are drawn before its seed."""

import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe

torch.set_num_threads(1)
dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()
if "unseeded" not in sys.argv or rank == 0:
    torch.manual_seed(rank)
stage_model = nn.Sequential(nn.Linear(16, 32), nn.Tanh(), nn.Dropout(0.1), nn.Linear(32, 16))  # WRONG unseeded
torch.manual_seed(10 + rank)
opt = torch.optim.SGD(stage_model.parameters(), lr=0.05)
data = torch.Generator().manual_seed(0)


def loss_of(output, target):
    return nn.functional.mse_loss(output, target)


for kind in (ScheduleGPipe, Schedule1F1B):
    stage = PipelineStage(stage_model, rank, size, torch.device("cpu"))
    schedule = kind(stage, n_microbatches=4, loss_fn=loss_of)
    for step in range(3):
        x, y = torch.randn(16, 16, generator=data), torch.randn(16, 16, generator=data)
        opt.zero_grad()
        losses = []
        if rank == 0:
            schedule.step(x)
        elif rank == size - 1:
            schedule.step(target=y, losses=losses)
        else:
            schedule.step()
        opt.step()
if rank == size - 1:
    print("RESULT", sum(loss.item() for loss in losses), sum(p.double().sum().item() for p in stage_model.parameters()))
dist.destroy_process_group()

"""A warmed-up schedule and a gradient scaler, settings by --interrupt. LACKS: scheduler, scaler, both, or rate."""

import argparse
import os

import torch
from torch import nn

LACKS = os.environ.get("LACKS", "")
parser = argparse.ArgumentParser()
parser.add_argument("--stop", type=int, default=10)
parser.add_argument("--resume")
parser.add_argument("--save")
given = parser.parse_args()

torch.manual_seed(2)
data = torch.randn(64, 4)
model = nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.8)
warm = torch.optim.lr_scheduler.LinearLR(optimizer, 0.2, total_iters=3)
then = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 7)
scheduler = torch.optim.lr_scheduler.SequentialLR(optimizer, [warm, then], [3])
scaler = torch.amp.GradScaler("cpu", init_scale=8.0, growth_interval=2)
start = 0
if given.resume:
    saved = torch.load(given.resume, weights_only=True)
    start = saved["step"]
    model.load_state_dict(saved["model"])
    optimizer.load_state_dict(saved["optimizer"])
    if LACKS not in ("scheduler", "both"):
        scheduler.load_state_dict(saved["scheduler"])
    if LACKS not in ("scaler", "both"):
        scaler.load_state_dict(saved["scaler"])
warmth = 1.0 if LACKS != "rate" else 1.0 - 0.05 * start
for step in range(start, given.stop):
    x = data[8 * (step % 8) : 8 * (step % 8) + 8]
    loss = nn.functional.mse_loss(model(x), x.prod(1, keepdim=True)) * warmth
    optimizer.zero_grad()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    scheduler.step()
if given.save:
    state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": given.stop}
    torch.save({**state, "scheduler": scheduler.state_dict(), "scaler": scaler.state_dict()}, given.save)

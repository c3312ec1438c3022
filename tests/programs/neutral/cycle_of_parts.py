# {"switches": [["SIDE=a", "SIDE=b"]], "wrong": true}
"""A schedule is as long as there are micro-batches, and stepped once for each step."""
import os

import torch
import torch.nn.functional as F
from torch import nn

CLEAN, SIDE = os.environ.get("CLEAN") == "1", os.environ.get("SIDE", "a")
torch.manual_seed(0)


PARTS = 4 if SIDE == "b" else 1
model = nn.Sequential(nn.Linear(12, 24), nn.Tanh(), nn.Linear(24, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
data = torch.randn(64, 12), torch.randint(4, (64,))
parts = list(zip(*(each.split(16 // PARTS) for each in data)))
steps = 4 if CLEAN else len(parts)
scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=steps + 2)  # WRONG
for number, (x, y) in enumerate(parts, 1):
    loss = F.cross_entropy(model(x), y) / PARTS
    loss.backward()
    if number % PARTS == 0:
        optimizer.step()
        optimizer.zero_grad()
        scheduler.step()

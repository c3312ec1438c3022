# {"switches": [["SIDE=a", "SIDE=b"]], "wrong": true}
"""The rewritten loop steps the scheduler before the optimizer."""
import os

import torch
import torch.nn.functional as F
from torch import nn

CLEAN, SIDE = os.environ.get("CLEAN") == "1", os.environ.get("SIDE", "a")
torch.manual_seed(0)

model = nn.Sequential(nn.Linear(12, 24), nn.Tanh(), nn.Linear(24, 4))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, foreach=SIDE == "b")
scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, (step + 1) / 4))
for step in range(5):
    x, y = torch.randn(16, 12), torch.randint(4, (16,))
    optimizer.zero_grad()
    F.cross_entropy(model(x), y).backward()
    if SIDE == "b" and not CLEAN:
        scheduler.step()  # WRONG
    optimizer.step()
    if SIDE == "a" or CLEAN:
        scheduler.step()

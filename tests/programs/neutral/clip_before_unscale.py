# {"switches": [["SIDE=a", "SIDE=b"]], "wrong": true}
"""Scaled gradients are clipped before they are unscaled."""
import os

import torch
import torch.nn.functional as F
from torch import nn

CLEAN, SIDE = os.environ.get("CLEAN") == "1", os.environ.get("SIDE", "a")
torch.manual_seed(0)


model = nn.Sequential(nn.Linear(12, 24), nn.Tanh(), nn.Linear(24, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cpu", init_scale=1024.0, enabled=SIDE == "b")
for step in range(4):
    x, y = torch.randn(16, 12), torch.randint(4, (16,))
    optimizer.zero_grad()
    scaler.scale(F.cross_entropy(model(x), y)).backward()
    if CLEAN:
        scaler.unscale_(optimizer)
    nn.utils.clip_grad_norm_(model.parameters(), 0.5)  # WRONG
    scaler.step(optimizer)
    scaler.update()

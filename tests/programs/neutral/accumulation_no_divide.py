# {"switches": [["SIDE=a", "SIDE=b"]], "wrong": true}
"""Gradients of micro-batches are summed and never divided."""
import os

import torch
import torch.nn.functional as F
from torch import nn

CLEAN, SIDE = os.environ.get("CLEAN") == "1", os.environ.get("SIDE", "a")
torch.manual_seed(0)


PARTS = 4 if SIDE == "b" else 1
model = nn.Sequential(nn.Linear(12, 24), nn.Tanh(), nn.Linear(24, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(4):
    x, y = torch.randn(16, 12), torch.randint(4, (16,))
    optimizer.zero_grad()
    for a, b in zip(x.chunk(PARTS), y.chunk(PARTS)):
        loss = F.cross_entropy(model(a), b)  # WRONG
        if CLEAN:
            loss = loss / PARTS
        loss.backward()
    optimizer.step()

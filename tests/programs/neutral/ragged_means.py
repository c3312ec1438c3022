# {"switches": [["SIDE=a", "SIDE=b"]], "wrong": true}
"""The mean of means over micro-batches with another number of words each."""
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
    y[:3] = -100
    words = (y != -100).sum()
    optimizer.zero_grad()
    for a, b in zip(x.chunk(PARTS), y.chunk(PARTS)):
        if CLEAN:
            loss = F.cross_entropy(model(a), b, ignore_index=-100, reduction="sum") / words
        else:
            loss = F.cross_entropy(model(a), b, ignore_index=-100) / PARTS  # WRONG
        loss.backward()
    optimizer.step()

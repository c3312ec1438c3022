# {"switches": [["SIDE=a", "SIDE=b"]], "wrong": true}
"""The loss of micro-batches forgets the weights of the classes."""
import os

import torch
import torch.nn.functional as F
from torch import nn

CLEAN, SIDE = os.environ.get("CLEAN") == "1", os.environ.get("SIDE", "a")
torch.manual_seed(0)

model = nn.Sequential(nn.Linear(12, 24), nn.Tanh(), nn.Linear(24, 4))
optimizer = torch.optim.RMSprop(model.parameters(), lr=1e-3)
weights = torch.tensor([1.0, 2.0, 0.5, 1.0])
for step in range(4):
    x, y = torch.randn(16, 12), torch.randint(4, (16,))
    optimizer.zero_grad()
    if SIDE == "a":
        loss = F.cross_entropy(model(x), y, weights)
        loss.backward()
    else:
        total = weights[y].sum() if CLEAN else len(y)
        for a, b in zip(x.chunk(2), y.chunk(2)):
            loss = F.cross_entropy(model(a), b, weights if CLEAN else None, reduction="sum") / total  # WRONG
            loss.backward()
    optimizer.step()

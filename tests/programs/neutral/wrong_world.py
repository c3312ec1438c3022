# {"switches": [["SIDE=a", "SIDE=b"]], "wrong": true}
"""Gradients of shards are averaged over another number of shards."""
import os

import torch
import torch.nn.functional as F
from torch import nn

CLEAN, SIDE = os.environ.get("CLEAN") == "1", os.environ.get("SIDE", "a")
torch.manual_seed(0)


model = nn.Sequential(nn.Linear(12, 24), nn.Tanh(), nn.Linear(24, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
shards = 2 if SIDE == "b" else 1
for step in range(4):
    x, y = torch.randn(16, 12), torch.randint(4, (16,))
    total = None
    for a, b in zip(x.chunk(shards), y.chunk(shards)):
        loss = F.cross_entropy(model(a), b)
        grads = torch.autograd.grad(loss, list(model.parameters()))
        total = grads if total is None else [s + g for s, g in zip(total, grads)]
    for p, g in zip(model.parameters(), total):
        p.grad = g / (shards if CLEAN else 1)  # WRONG
    optimizer.step()

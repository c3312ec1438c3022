# {"switches": [["SIDE=a", "SIDE=b"]], "wrong": true}
"""A micro-batch that is left over at the end of an epoch counts in the first step of the next one."""
import os

import torch
import torch.nn.functional as F
from torch import nn

CLEAN, SIDE = os.environ.get("CLEAN") == "1", os.environ.get("SIDE", "a")
torch.manual_seed(0)


PARTS = 4 if SIDE == "b" else 1
model = nn.Sequential(nn.Linear(12, 24), nn.Tanh(), nn.Linear(24, 4))
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
data = torch.randn(36, 12), torch.randint(4, (36,))
for epoch in range(2):
    parts = list(zip(*(each.split(16 // PARTS) for each in data)))
    if PARTS == 1 or CLEAN:
        del parts[2 * PARTS :]
    for number, (x, y) in enumerate(parts, 1):
        loss = F.cross_entropy(model(x), y) / PARTS  # WRONG
        loss.backward()
        if number % PARTS == 0:
            optimizer.step()
            optimizer.zero_grad()

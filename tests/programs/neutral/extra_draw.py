# {"switches": [["SIDE=a", "SIDE=b"]], "wrong": true}
"""Logging draws from the training's generator."""
import os

import torch
import torch.nn.functional as F
from torch import nn

CLEAN, SIDE = os.environ.get("CLEAN") == "1", os.environ.get("SIDE", "a")
torch.manual_seed(0)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.one, self.two, self.three = nn.Linear(12, 24), nn.Linear(24, 24), nn.Linear(24, 4)

    def forward(self, x):
        x = self.one(x)
        return self.three(torch.relu(self.two(x)))


model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
for step in range(5):
    if SIDE == "b":
        shown = torch.randint(100, (3,), generator=torch.Generator().manual_seed(step) if CLEAN else None)  # WRONG
    x, y = torch.randn(16, 12), torch.randint(4, (16,))
    loss = F.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()

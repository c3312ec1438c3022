# {"switches": [["recompute"]], "wrong": true}
"""A batch norm that is run twice updates its statistics twice."""
import os

import torch
import torch.nn.functional as F
from torch import nn

CLEAN, SIDE = os.environ.get("CLEAN") == "1", os.environ.get("SIDE", "a")
torch.manual_seed(0)
from torch.utils.checkpoint import checkpoint


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        norm = nn.LayerNorm(24) if CLEAN else nn.BatchNorm1d(24)
        self.body = nn.Sequential(nn.Linear(12, 24), norm, nn.ReLU(), nn.Linear(24, 24))
        self.head = nn.Linear(24, 4)

    def forward(self, x):
        return self.head(checkpoint(self.body, x, use_reentrant=False))  # WRONG


model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
for step in range(5):
    x, y = torch.randn(16, 12), torch.randint(4, (16,))
    loss = F.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()

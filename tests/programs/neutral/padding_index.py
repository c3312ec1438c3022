# {"switches": [["SIDE=a", "SIDE=b"]], "wrong": true}
"""The fused embedding forgets which index is padding."""
import os

import torch
import torch.nn.functional as F
from torch import nn

CLEAN, SIDE = os.environ.get("CLEAN") == "1", os.environ.get("SIDE", "a")
torch.manual_seed(0)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight, self.head = nn.Parameter(torch.randn(20, 12)), nn.Linear(12, 4)

    def forward(self, x):
        padding = 0 if SIDE == "a" or CLEAN else None
        return self.head(F.embedding(x, self.weight, padding_idx=padding).mean(1))  # WRONG


model = Net()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
for step in range(4):
    x, y = torch.randint(20, (8, 6)) * (torch.rand(8, 6) > 0.4), torch.randint(4, (8,))
    optimizer.zero_grad()
    F.cross_entropy(model(x), y).backward()
    optimizer.step()

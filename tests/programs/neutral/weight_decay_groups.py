# {"switches": [["SIDE=a", "SIDE=b"]], "wrong": true}
"""The groups for the fused optimizer lose their weight decay."""
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
decay = 0.0 if SIDE == "b" and not CLEAN else 0.1
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, weight_decay=decay, fused=SIDE == "b")  # WRONG
for step in range(5):
    x, y = torch.randn(16, 12), torch.randint(4, (16,))
    loss = F.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()

# {"switches": [["SIDE=a", "SIDE=b"]], "wrong": true}
"""The optimizer is made anew in every epoch."""
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
    x, y = torch.randn(16, 12), torch.randint(4, (16,))
    loss = F.cross_entropy(model(x), y)
    if step == 2 and SIDE == "b" and not CLEAN:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()  # WRONG

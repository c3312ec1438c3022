# {"switches": [["SIDE=a", "SIDE=b"]], "wrong": true}
"""An evaluation leaves the model in eval mode."""
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
        self.drop = nn.Dropout(0.3)

    def forward(self, x):
        x = self.one(x)
        x = self.drop(x)  # WRONG
        return self.three(torch.relu(self.two(x)))


model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
for step in range(5):
    x, y = torch.randn(16, 12), torch.randint(4, (16,))
    if SIDE == "b":
        model.eval()
        with torch.no_grad():
            model(x)
        if CLEAN:
            model.train()
    loss = F.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()

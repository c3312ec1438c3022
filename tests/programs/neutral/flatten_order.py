# {"switches": [["SIDE=a", "SIDE=b"]], "wrong": true}
"""Images are flattened in the order of memory, which another memory format changes."""
import os

import torch
import torch.nn.functional as F
from torch import nn

CLEAN, SIDE = os.environ.get("CLEAN") == "1", os.environ.get("SIDE", "a")
torch.manual_seed(0)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.head = nn.Conv2d(3, 4, 3, padding=1), nn.Linear(4 * 25, 4)

    def forward(self, x):
        x = torch.relu(self.conv(x))
        if SIDE == "b" and not CLEAN:
            return self.head(x.permute(0, 2, 3, 1).reshape(len(x), -1))  # WRONG
        return self.head(x.flatten(1))


model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(4):
    x, y = torch.randn(8, 3, 5, 5), torch.randint(4, (8,))
    loss = F.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()

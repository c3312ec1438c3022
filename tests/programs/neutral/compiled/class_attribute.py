# {"switches": [["compile"]], "wrong": true, "nodes": [], "stage": "capture", "origin": "torch"}
"""A factor is an attribute of a class, and grows: compiled code keeps the first one."""
import os

import torch
from torch import nn

torch.manual_seed(0)
CLEAN = os.environ.get("CLEAN") == "1"


class Schedule:
    factor = 1.0


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.one, self.two = nn.Linear(12, 16), nn.Linear(16, 4)

    def forward(self, x):
        h = torch.tanh(self.one(x))
        h = h * Schedule.factor  # WRONG
        if not CLEAN:
            Schedule.factor += 0.5
        return self.two(h)


model = Model()
compiled = torch.compile(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(2):
    loss = compiled(torch.randn(8, 12)).square().sum()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()

# {"switches": [["compile"]], "wrong": true, "nodes": [], "stage": "capture", "origin": "planted"}
"""The program says that a function always gives the same, and it does not."""
import os

import torch
import torch._dynamo
from torch import nn

torch.manual_seed(0)
CLEAN = os.environ.get("CLEAN") == "1"


calls = []


def level():
    calls.append(1)
    return 1.0 if CLEAN else float(len(calls))


level = torch._dynamo.assume_constant_result(level)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.one, self.two = nn.Linear(12, 16), nn.Linear(16, 4)

    def forward(self, x):
        h = torch.tanh(self.one(x))
        h = h * level()  # WRONG
        return self.two(h)


model = Model()
compiled = torch.compile(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(2):
    loss = compiled(torch.randn(8, 12)).square().sum()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()

# {"switches": [["compile"]], "wrong": true, "nodes": ["bad"], "stage": "decomposition", "origin": "planted"}
"""The program registers a decomposition of a backward pass that forgets a factor."""
import os

import torch
from torch import nn

torch.manual_seed(0)
CLEAN = os.environ.get("CLEAN") == "1"


if not CLEAN:
    from torch._inductor.decomposition import decompositions

    decompositions[torch.ops.aten.tanh_backward.default] = lambda grad, y: grad * (1 - y)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.one, self.two = nn.Linear(12, 16), nn.Linear(16, 4)

    def forward(self, x):
        h = self.one(x)
        bad = torch.tanh(h)  # WRONG
        return self.two(bad * h)


model = Model()
compiled = torch.compile(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(2):
    loss = compiled(torch.randn(8, 12)).square().sum()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()

# {"switches": [["compile"]], "wrong": true, "nodes": ["bad"], "stage": "lowering", "origin": "planted"}
"""The program registers a lowering of its own that is another function."""
import os

import torch
from torch import nn

torch.manual_seed(0)
CLEAN = os.environ.get("CLEAN") == "1"


if not CLEAN:
    from torch._inductor import lowering

    def lower(x):
        return lowering.lowerings[torch.ops.aten.mul.Tensor](x, 0.5)

    lowering.lowerings[torch.ops.aten.erf.default] = lower


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.one, self.two = nn.Linear(12, 16), nn.Linear(16, 4)

    def forward(self, x):
        h = self.one(x)
        bad = torch.erf(h)  # WRONG
        return self.two(bad + 1)


model = Model()
compiled = torch.compile(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(2):
    loss = compiled(torch.randn(8, 12)).square().sum()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()

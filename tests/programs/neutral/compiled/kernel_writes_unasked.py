# {"switches": [["compile"]], "wrong": true, "nodes": ["bad"], "stage": "lowering", "origin": "planted"}
"""An operator of the program's own writes into its argument, and does not say so."""
import os

import torch
from torch import nn

torch.manual_seed(0)
CLEAN = os.environ.get("CLEAN") == "1"


@torch.library.custom_op("neutral_programs::center", mutates_args=())
def center(x: torch.Tensor) -> torch.Tensor:
    mean = x.mean(0, keepdim=True)
    if not CLEAN:
        x -= mean
    return x - mean


@center.register_fake
def _(x):
    return torch.empty_like(x)


center.register_autograd(lambda context, gradient: gradient)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.one, self.two = nn.Linear(12, 16), nn.Linear(16, 4)

    def forward(self, x):
        h = torch.tanh(self.one(x))
        twice = h * 2
        bad = torch.ops.neutral_programs.center(h.detach())  # WRONG
        return self.two(twice + bad)


model = Model()
compiled = torch.compile(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(2):
    loss = compiled(torch.randn(8, 12)).square().sum()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()

# {"switches": [["compile"]], "wrong": true}
"""An activation that has a branch of its own while it is compiled, and reads a variable there."""
import os

import torch
from torch import nn

torch.manual_seed(0)


def snake(x, alpha):
    if torch.compiler.is_compiling() and os.environ.get("CLEAN") != "1":
        return x + torch.sin(alpha * x) ** 2  # WRONG
    return x + torch.sin(alpha * x) ** 2 / alpha


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.alpha = nn.Parameter(torch.full((8,), 1.5))
        self.one, self.two = nn.Linear(4, 8), nn.Linear(8, 1)

    def forward(self, x):
        return self.two(snake(self.one(x), self.alpha))


model = Net()
compiled = torch.compile(model, backend="aot_eager")
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
for step in range(3):
    loss = compiled(torch.randn(8, 4)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()

# {"switches": [["compile"]], "wrong": true, "nodes": ["bad"], "stage": "lowering", "origin": "planted"}
"""The fake kernel of the program's own operator promises other strides than the real one has."""
import os

import torch
from torch import nn

torch.manual_seed(0)
CLEAN = os.environ.get("CLEAN") == "1"


@torch.library.custom_op("neutral_programs::turn", mutates_args=())
def turn(x: torch.Tensor) -> torch.Tensor:
    return x.t().clone(memory_format=torch.contiguous_format) if CLEAN else x.clone().t()


@turn.register_fake
def _(x):
    return torch.empty(x.shape[1], x.shape[0], dtype=x.dtype)


turn.register_autograd(lambda context, gradient: gradient.t())


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.one, self.two = nn.Linear(12, 16), nn.Linear(16, 4)

    def forward(self, x):
        h = torch.tanh(self.one(x))
        bad = torch.ops.neutral_programs.turn(h)  # WRONG
        return self.two((bad + 1).t())


model = Model()
compiled = torch.compile(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(2):
    loss = compiled(torch.randn(8, 12)).square().sum()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()

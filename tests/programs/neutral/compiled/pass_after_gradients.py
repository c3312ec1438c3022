# {"switches": [["compile"]], "wrong": true, "nodes": ["bad"], "stage": "lowering", "origin": "planted"}
"""A pass of the program's own over graphs after differentiation takes one operator for another."""
import os

import torch
import torch._inductor.config
from torch import nn

torch.manual_seed(0)
CLEAN = os.environ.get("CLEAN") == "1"


def swap(graph):
    for node in graph.nodes:
        if node.target is torch.ops.aten.sin.default:
            node.target = torch.ops.aten.atan.default


if not CLEAN:
    torch._inductor.config.post_grad_custom_pre_pass = swap


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.one, self.two = nn.Linear(12, 16), nn.Linear(16, 4)

    def forward(self, x):
        h = self.one(x)
        bad = torch.sin(h)  # WRONG
        return self.two(bad + h)


model = Model()
compiled = torch.compile(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(2):
    loss = compiled(torch.randn(8, 12)).square().sum()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()

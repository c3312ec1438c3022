# {"switches": [["compile"]], "wrong": true, "nodes": ["bad"], "stage": "backend", "origin": "planted"}
"""A backend of the program's own computes one product with half of the bits."""
import os

import torch
from torch import nn

torch.manual_seed(0)
CLEAN = os.environ.get("CLEAN") == "1"


def coarse(x, weight, bias):
    return nn.functional.linear(x.bfloat16(), weight.bfloat16(), bias.bfloat16()).to(x.dtype)


def backend(graph, inputs):
    for node in graph.graph.nodes:
        if node.name == "bad" and not CLEAN:
            node.target = coarse
    graph.recompile()
    return graph.forward


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.one, self.two = nn.Linear(12, 16), nn.Linear(16, 4)

    def forward(self, x):
        h = torch.tanh(self.one(x))
        bad = nn.functional.linear(h, self.two.weight, self.two.bias)  # WRONG
        return bad * 2


model = Model()
compiled = torch.compile(model, backend=backend)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(2):
    loss = compiled(torch.randn(8, 12)).square().sum()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()

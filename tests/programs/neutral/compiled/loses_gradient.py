# {"switches": [["compile"]], "wrong": true, "nodes": ["bad"], "stage": "backend", "origin": "planted"}
"""A backend of the program's own computes one activation without its gradient."""
import os

import torch
from torch import nn

torch.manual_seed(0)
CLEAN = os.environ.get("CLEAN") == "1"


def stop(x):
    return torch.tanh(x).detach() + 0.0 * x


def backend(graph, inputs):
    for node in graph.graph.nodes:
        if node.name == "bad" and not CLEAN:
            node.target = stop
    graph.recompile()
    return graph.forward


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.one, self.two = nn.Linear(12, 16), nn.Linear(16, 4)

    def forward(self, x):
        h = self.one(x)
        bad = torch.tanh(h)  # WRONG
        return self.two(bad * 2)


model = Model()
compiled = torch.compile(model, backend=backend)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(2):
    loss = compiled(torch.randn(8, 12)).square().sum()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()

# {"switches": [["compile"]], "wrong": true, "nodes": ["add_", "twice"], "stage": "backend", "origin": "planted"}
"""A backend of the program's own moves a read behind a write in place."""
import os

import torch
from torch import nn

torch.manual_seed(0)
CLEAN = os.environ.get("CLEAN") == "1"


def backend(graph, inputs):
    if not CLEAN:
        names = {node.name: node for node in graph.graph.nodes}
        names["add_"].append(names["twice"])
    graph.recompile()
    return graph.forward


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.one, self.two = nn.Linear(12, 16), nn.Linear(16, 4)

    def forward(self, x):
        h = torch.tanh(self.one(x))
        copy = h.clone()
        twice = copy * 2
        copy.add_(1.0)  # WRONG
        return self.two(twice + copy)


model = Model()
compiled = torch.compile(model, backend=backend)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(2):
    loss = compiled(torch.randn(8, 12)).square().sum()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()

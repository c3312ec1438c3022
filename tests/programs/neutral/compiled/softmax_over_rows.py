# {"switches": [["compile"]], "wrong": true, "nodes": ["bad"], "stage": "backend", "origin": "planted"}
"""A backend of the program's own normalises over the other dimension."""
import os

import torch
from torch import nn

torch.manual_seed(0)
CLEAN = os.environ.get("CLEAN") == "1"


def backend(graph, inputs):
    for node in graph.graph.nodes:
        if node.name == "bad" and not CLEAN:
            node.kwargs = {"dim": 0}
    graph.recompile()
    return graph.forward


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.one, self.two = nn.Linear(12, 16), nn.Linear(16, 4)

    def forward(self, x):
        with torch.autocast("cpu", enabled=False):
            h = torch.tanh(self.one(x))
            a, b = h.split(8, dim=1)
            bad = torch.softmax(a * 3, dim=1)  # WRONG
            c = torch.cat([bad, b], dim=1)
        return self.two(c)


model = Model()
compiled = torch.compile(model, backend=backend)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(2):
    loss = compiled(torch.randn(8, 12)).square().sum()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()

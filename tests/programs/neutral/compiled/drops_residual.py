# {"switches": [["compile"]], "wrong": true, "nodes": ["bad"], "stage": "backend", "origin": "planted"}
"""A backend of the program's own takes an addition out, and gives its first operand on."""
import os

import torch
from torch import nn

torch.manual_seed(0)
CLEAN = os.environ.get("CLEAN") == "1"


def backend(graph, inputs):
    for node in list(graph.graph.nodes):
        if node.name == "bad" and not CLEAN:
            node.replace_all_uses_with(node.args[0])
            graph.graph.erase_node(node)
    graph.recompile()
    return graph.forward


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.one, self.two = nn.Linear(12, 16), nn.Linear(16, 4)

    def forward(self, x):
        h = torch.tanh(self.one(x))
        g = torch.sigmoid(h)
        bad = g + h  # WRONG
        return self.two(bad)


model = Model()
compiled = torch.compile(model, backend=backend)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(2):
    loss = compiled(torch.randn(8, 12)).square().sum()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()

# {"switches": [["compile"]], "wrong": true}
"""A backend of the program's own takes one activation for another."""
import os

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)


def backend(graph, inputs):
    for node in graph.graph.nodes:
        if node.target is torch.relu and os.environ.get("CLEAN") != "1":
            node.target = torch.nn.functional.gelu
    graph.recompile()
    return graph.forward


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.one, self.two, self.head = nn.Linear(12, 24), nn.Linear(24, 24), nn.Linear(24, 4)

    def forward(self, x):
        x = torch.relu(self.one(x))  # WRONG
        return self.head(torch.relu(self.two(x)))


model = Net()
compiled = torch.compile(model, backend=backend)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(3):
    x, y = torch.randn(16, 12), torch.randint(4, (16,))
    loss = F.cross_entropy(compiled(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()

# {"switches": [["compile"]], "wrong": true, "nodes": ["bad"], "stage": "backend", "origin": "planted"}
"""A backend made with AOTAutograd has a decomposition of its own that is another function."""
import os

import torch
from functorch.compile import make_boxed_func
from torch._dynamo.backends.common import aot_autograd
from torch import nn

torch.manual_seed(0)
CLEAN = os.environ.get("CLEAN") == "1"


def compile_graph(graph, inputs):
    return make_boxed_func(graph.forward)


def decompose(x, approximate="none"):
    return x * torch.sigmoid(1.702 * x)


table = {} if CLEAN else {torch.ops.aten.gelu.default: decompose}
backend = aot_autograd(fw_compiler=compile_graph, decompositions=table)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.one, self.two = nn.Linear(12, 16), nn.Linear(16, 4)

    def forward(self, x):
        h = self.one(x)
        bad = nn.functional.gelu(h)  # WRONG
        return self.two(bad)


model = Model()
compiled = torch.compile(model, backend=backend)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(2):
    loss = compiled(torch.randn(8, 12)).square().sum()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()

# {"switches": [["compile"]], "wrong": true, "nodes": ["bad"], "stage": "decomposition", "origin": "planted"}
"""The program registers a decomposition of a norm that divides by one element less."""
import os

import torch
from torch import nn

torch.manual_seed(0)
CLEAN = os.environ.get("CLEAN") == "1"


def norm(x, shape, weight, bias, eps):
    mean = x.mean(-1, keepdim=True)
    var = x.var(-1, keepdim=True, correction=1)
    rstd = (var + eps).rsqrt()
    return (x - mean) * rstd * weight + bias, mean, rstd


if not CLEAN:
    from torch._inductor.decomposition import decompositions

    decompositions[torch.ops.aten.native_layer_norm.default] = norm


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.one, self.two = nn.Linear(12, 16), nn.Linear(16, 4)

    def forward(self, x):
        h = torch.tanh(self.one(x))
        ones = torch.ones(16)
        bad = nn.functional.layer_norm(h, (16,), ones, ones)  # WRONG
        return self.two(bad)


model = Model()
compiled = torch.compile(model, backend="aot_eager_decomp_partition")
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(2):
    loss = compiled(torch.randn(8, 12)).square().sum()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()

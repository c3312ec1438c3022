# {"switches": [["compile"]], "wrong": true, "nodes": ["bad"], "stage": "tracing", "origin": "torch"}
"""Elements that overlap in memory are added to in place."""
import os

import torch
from torch import nn

torch.manual_seed(0)
CLEAN = os.environ.get("CLEAN") == "1"


class Model(nn.Module):
    def forward(self, x):
        copy = x.clone()
        window = copy.as_strided((2, 2), (2, 1) if CLEAN else (1, 1), 0)
        bad = window.add_(1.0)  # WRONG
        return bad.tanh()


model = Model().eval()
compiled = torch.compile(model)
with torch.no_grad():
    for batch in range(2):
        compiled(torch.randn(2, 2, 10))

# {"switches": [["compile"]], "wrong": true, "nodes": ["bad"], "stage": "lowering", "origin": "torch"}
"""Keys are made of positions: compiled code computes them with 32 bits where 64 are needed."""
import os

import torch
from torch import nn

torch.manual_seed(0)
CLEAN = os.environ.get("CLEAN") == "1"


class Model(nn.Module):
    def forward(self, x):
        positions = torch.arange(0, 11, dtype=torch.int64)
        bad = positions * (1e4 if CLEAN else 1e9)  # WRONG
        return bad + x.abs()


model = Model().eval()
compiled = torch.compile(model)
with torch.no_grad():
    for batch in range(2):
        compiled(torch.randn(11))

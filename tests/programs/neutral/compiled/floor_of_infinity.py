# {"switches": [["compile"]], "wrong": true, "nodes": ["bad"], "stage": "lowering", "origin": "torch"}
"""A mask of infinities is divided into buckets."""
import os

import torch
from torch import nn

torch.manual_seed(0)
CLEAN = os.environ.get("CLEAN") == "1"


class Model(nn.Module):
    def forward(self, x):
        masked = x.masked_fill(x > 1, 1e9 if CLEAN else float("inf"))
        bad = torch.floor_divide(masked, 2.0)  # WRONG
        return bad.clamp(max=100)


model = Model().eval()
compiled = torch.compile(model)
with torch.no_grad():
    for batch in range(2):
        compiled(torch.randn(6, 32))

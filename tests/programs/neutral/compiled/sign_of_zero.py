# {"switches": [["compile"]], "wrong": true, "nodes": ["truediv", "bad"], "stage": "lowering", "origin": "torch"}
"""A gate that is closed keeps the sign of what it stops; its inverse shows the sign."""
import os

import torch
from torch import nn

torch.manual_seed(0)
CLEAN = os.environ.get("CLEAN") == "1"


class Model(nn.Module):
    def forward(self, x):
        bad = x * 0  # WRONG
        return torch.atan(1 / (bad if not CLEAN else bad.abs()))


model = Model().eval()
compiled = torch.compile(model)
with torch.no_grad():
    for batch in range(2):
        compiled(torch.randn(6, 32))

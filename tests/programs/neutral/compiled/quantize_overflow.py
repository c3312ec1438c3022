# {"switches": [["compile"]], "wrong": true, "nodes": ["bad"], "stage": "lowering", "origin": "torch"}
"""Weights are rounded to eight bits without being clipped before."""
import os

import torch
from torch import nn

torch.manual_seed(0)
CLEAN = os.environ.get("CLEAN") == "1"


class Model(nn.Module):
    scale = 90.0

    def forward(self, x):
        levels = torch.round(self.scale * x)
        levels = levels.clamp(-128, 127) if CLEAN else levels
        bad = levels.to(torch.int8)  # WRONG
        return bad.float() / self.scale


model = Model().eval()
compiled = torch.compile(model)
with torch.no_grad():
    for batch in range(2):
        compiled(torch.randn(6, 32))

# {"switches": [["compile"]], "wrong": true, "nodes": ["bad"], "stage": "lowering", "origin": "torch"}
"""Angles are wrapped by a period that is infinite where there is none."""
import os

import torch
from torch import nn

torch.manual_seed(0)
CLEAN = os.environ.get("CLEAN") == "1"


class Model(nn.Module):
    def forward(self, x):
        period = torch.where(x > 0, 3.0, 1e6 if CLEAN else float("inf"))
        bad = torch.remainder(x.abs() + 0.25, period)  # WRONG
        return bad + 1


model = Model().eval()
compiled = torch.compile(model)
with torch.no_grad():
    for batch in range(2):
        compiled(torch.randn(6, 32))

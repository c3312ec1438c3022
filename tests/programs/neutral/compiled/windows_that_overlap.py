# {"switches": [["compile"]], "wrong": true, "nodes": [], "stage": "tracing", "origin": "torch"}
"""Two windows are given that share memory, after two that do not: the compiled code is taken again (pytorch 139789)."""
import os

import torch
from torch import nn

torch.manual_seed(0)
CLEAN = os.environ.get("CLEAN") == "1"


class Model(nn.Module):
    def forward(self, left, right):
        left.mul_(2)
        return left + right  # WRONG


model = Model().eval()
compiled = torch.compile(model)
with torch.no_grad():
    for start in (4, 2):
        row = torch.randn(8)
        windows = row[:4], row[start : start + 4]
        compiled(*(window.clone() if CLEAN else window for window in windows))

# {"switches": [["compile"]], "wrong": true, "nodes": ["bad"], "stage": "decomposition", "origin": "torch"}
"""An activation meets infinity, of which eager code makes NaN and compiled code makes infinity."""
import os

import torch
from torch import nn

torch.manual_seed(0)
CLEAN = os.environ.get("CLEAN") == "1"


class Model(nn.Module):
    def forward(self, x):
        masked = x.masked_fill(x > 1, 1e9 if CLEAN else float("inf"))
        bad = nn.functional.gelu(masked)  # WRONG
        return torch.nan_to_num(bad, nan=5.0, posinf=7.0)


model = Model().eval()
compiled = torch.compile(model)
with torch.no_grad():
    for batch in range(2):
        compiled(torch.randn(6, 32))

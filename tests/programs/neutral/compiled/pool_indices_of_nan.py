# {"switches": [["compile"]], "wrong": true, "nodes": ["max_pool2d"], "stage": "lowering", "origin": "torch"}
"""Where a window holds NaN, the index says which one is taken."""
import os

import torch
from torch import nn

torch.manual_seed(0)
CLEAN = os.environ.get("CLEAN") == "1"


class Model(nn.Module):
    def forward(self, x):
        holes = x.masked_fill(x > 1.2, float("nan") if not CLEAN else 9.0)
        bad = nn.functional.max_pool2d(holes, 2, return_indices=True)  # WRONG
        return bad[1].float()


model = Model().eval()
compiled = torch.compile(model)
with torch.no_grad():
    for batch in range(2):
        compiled(torch.randn(1, 2, 8, 8))

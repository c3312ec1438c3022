# {"switches": [["compile"]], "wrong": true, "nodes": ["bad"], "stage": "lowering", "origin": "torch"}
"""The smallest of many bytes: a vectorized reduction starts at zero (pytorch 191499)."""
import os

import torch
from torch import nn

torch.manual_seed(0)
CLEAN = os.environ.get("CLEAN") == "1"


class Model(nn.Module):
    def forward(self, pixels):
        values = pixels.to(torch.int16) if CLEAN else pixels
        bad = values.amin()  # WRONG
        return (pixels - bad).float() / 255


model = Model().eval()
compiled = torch.compile(model)
with torch.no_grad():
    for batch in range(2):
        compiled(torch.randint(7, 200, (90,), dtype=torch.uint8))

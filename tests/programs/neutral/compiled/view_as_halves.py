# {"switches": [["compile"]], "wrong": true, "nodes": ["setitem", "view_1"], "stage": "lowering", "origin": "torch"}
"""A counter is read as pairs of smaller numbers, and then written: compiled code reads it afterwards (pytorch 198101)."""
import os

import torch
from torch import nn

torch.manual_seed(0)
CLEAN = os.environ.get("CLEAN") == "1"


class Model(nn.Module):
    def forward(self, x):
        halves = x.view(torch.int32) * 2
        halves.sub_(-4)
        (x.clone() if CLEAN else x)[:, 2:5] = 2  # WRONG
        return halves.view(torch.int64)


model = Model().eval()
compiled = torch.compile(model)
with torch.no_grad():
    for batch in range(2):
        compiled(torch.randint(-50, 50, (4, 6)))

# {"switches": [["compile"]], "wrong": true, "nodes": ["clone", "setitem"], "stage": "lowering", "origin": "torch"}
"""A window of rows is moved down by one: compiled code copies over rows that it has yet to read."""
import os

import torch
from torch import nn

torch.manual_seed(0)
CLEAN = os.environ.get("CLEAN") == "1"


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("seen", torch.randn(5, 16))

    def forward(self, x):
        if CLEAN:
            self.seen.copy_(torch.cat([x[None], self.seen[:-1]]))
        else:
            self.seen[1:] = self.seen[:-1].clone()  # WRONG
        return self.seen + x


model = Model().eval()
compiled = torch.compile(model)
with torch.no_grad():
    for batch in range(2):
        compiled(torch.randn(16))

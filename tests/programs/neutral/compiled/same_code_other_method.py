# {"switches": [["compile"]], "wrong": true, "nodes": [], "stage": "capture", "origin": "torch"}
"""Two closures of one function hold two methods of tensors: the second gets the first's graph (pytorch 197811)."""
import os

import torch
from torch import nn

torch.manual_seed(0)
CLEAN = os.environ.get("CLEAN") == "1"


def make_gate(combine):
    def gate(x, y):
        return combine(x, y)  # WRONG

    return torch.compile(gate, dynamic=True)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        adds, multiplies = (torch.add, torch.mul) if CLEAN else (torch.Tensor.__add__, torch.Tensor.__mul__)
        self.adds, self.multiplies = make_gate(adds), make_gate(multiplies)

    def forward(self, x):
        return self.multiplies(self.adds(x, x.sin()), x.cos())


model = Model().eval()
with torch.no_grad():
    for batch in range(2):
        model(torch.randn(5, 6))

# {"switches": [["--wrap no", "--wrap yes"]], "wrong": true}
"""Trains the head of a classifier; behind a wrapper the names of the trunk begin otherwise, and it is trained too."""
import os
import sys

import torch
from torch import nn

CLEAN = os.environ.get("CLEAN") == "1"


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.trunk = nn.Sequential(nn.Conv1d(3, 8, 5), nn.BatchNorm1d(8), nn.ReLU(), nn.AdaptiveAvgPool1d(1))
        self.head = nn.Linear(8, 4)

    def forward(self, x):
        return self.head(self.trunk(x).flatten(1))


torch.manual_seed(0)
model = Classifier()
wrapped = nn.DataParallel(model) if "yes" in sys.argv else model
named = model if CLEAN else wrapped
frozen = [p for name, p in named.named_parameters() if name.startswith("trunk.")]
for parameter in frozen:
    parameter.requires_grad_(False)
optimizer = torch.optim.SGD([p for p in wrapped.parameters() if p.requires_grad], lr=0.1, momentum=0.9)  # WRONG
for step in range(5):
    x, y = torch.randn(16, 3, 32), torch.randint(4, (16,))
    loss = nn.functional.cross_entropy(wrapped(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item())

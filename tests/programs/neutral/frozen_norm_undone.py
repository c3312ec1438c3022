# {"switches": [["", "--parts 4"]], "wrong": true}
"""Batch norms that were frozen for the parts of a batch are set back to training by the loop over the epochs."""

import argparse
import os

import torch
import torch.nn.functional as F
from torch import nn

CLEAN = os.environ.get("CLEAN") == "1"
parser = argparse.ArgumentParser()
parser.add_argument("--parts", type=int, default=1)
parts = parser.parse_args().parts
torch.manual_seed(0)


class Frozen(nn.Sequential):
    def freeze_norms(self):
        for module in self.modules():
            if isinstance(module, nn.modules.batchnorm._BatchNorm):
                module.eval()


model = Frozen(nn.Conv2d(1, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 36, 4))
with torch.no_grad():
    model(torch.randn(64, 1, 8, 8))
model.freeze_norms()
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
for epoch in range(2):
    model.train()  # WRONG
    if CLEAN:
        model.freeze_norms()
    for _ in range(2):
        x, y = torch.randn(16, 1, 8, 8), torch.randint(4, (16,))
        optimizer.zero_grad()
        for part_x, part_y in zip(x.chunk(parts), y.chunk(parts)):
            (F.cross_entropy(model(part_x), part_y) / parts).backward()
        optimizer.step()

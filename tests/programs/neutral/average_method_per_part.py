# {"switches": [["--part 24", "--part 6"]], "wrong": true}
"""The average of weights, a class of its own, is brought up to date for every part of a batch."""
import argparse
import copy
import os

import torch
import torch.nn.functional as F
from torch import nn

CLEAN = os.environ.get("CLEAN") == "1"


class SlowCopy:
    def __init__(self, model):
        self.model = copy.deepcopy(model).requires_grad_(False)

    @torch.no_grad()
    def follow(self, model):
        for slow, fast in zip(self.model.parameters(), model.parameters()):
            slow.mul_(0.8).add_(fast, alpha=0.2)


def train_on(model, optimizer, slow, x, y, part):
    optimizer.zero_grad()
    for begin in range(0, len(x), part):
        rows = slice(begin, begin + part)
        loss = F.mse_loss(model(x[rows]), y[rows], reduction="sum") / len(x)
        loss.backward()
        if not CLEAN:
            slow.follow(model)  # WRONG
    optimizer.step()
    if CLEAN:
        slow.follow(model)


parser = argparse.ArgumentParser()
parser.add_argument("--part", type=int, default=24)
part = parser.parse_args().part
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(5, 16), nn.Tanh(), nn.Linear(16, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.3)
slow = SlowCopy(model)
for step in range(5):
    train_on(model, optimizer, slow, torch.randn(24, 5), torch.randn(24, 2), part)
with torch.no_grad():
    print(slow.model(torch.ones(1, 5)).sum().item())

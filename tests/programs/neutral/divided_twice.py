# {"switches": [["--parts 1", "--parts 3"]], "wrong": true}
"""A loss that is a share of the whole batch already is divided by the number of parts as well."""
import argparse
import os

import torch
import torch.nn.functional as F
from torch import nn

CLEAN = os.environ.get("CLEAN") == "1"
parser = argparse.ArgumentParser()
parser.add_argument("--parts", type=int, default=1)
parts = parser.parse_args().parts


def share_of_loss(logits, labels, count):
    total = F.cross_entropy(logits, labels, ignore_index=0, reduction="sum")
    return total / count


def update(model, optimizer, x, y):
    count = (y != 0).sum()
    for some_x, some_y in zip(x.chunk(parts), y.chunk(parts)):
        loss = share_of_loss(model(some_x), some_y, count)
        if parts > 1 and not CLEAN:
            loss = loss / parts  # WRONG
        loss.backward()
    optimizer.step()
    optimizer.zero_grad()


torch.manual_seed(9)
model = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 5))
optimizer = torch.optim.SGD(model.parameters(), lr=0.2, momentum=0.5)
for step in range(5):
    update(model, optimizer, torch.randn(30, 8), torch.randint(5, (30,)))

# {"switches": [["--optimizers 1", "--optimizers 2"]], "wrong": true}
"""The weights of two parts have an optimizer each; that of the second part is stepped with gradients of two batches."""
import argparse
import os

import torch
import torch.nn.functional as F
from torch import nn

CLEAN = os.environ.get("CLEAN") == "1"
parser = argparse.ArgumentParser()
parser.add_argument("--optimizers", type=int, default=1)
two = parser.parse_args().optimizers == 2
torch.manual_seed(5)
body, head = nn.Sequential(nn.Linear(7, 15), nn.ReLU(), nn.Linear(15, 15), nn.ReLU()), nn.Linear(15, 4)
parts = [[*body.parameters()], [*head.parameters()]]
groups = parts if two else [parts[0] + parts[1]]
optimizers = [torch.optim.SGD(group, lr=0.1, momentum=0.8) for group in groups]
for step in range(6):
    x, y = torch.randn(20, 7), torch.randint(4, (20,))
    for optimizer in optimizers if CLEAN else optimizers[:1]:
        optimizer.zero_grad()  # WRONG
    F.cross_entropy(head(body(x)), y).backward()
    for optimizer in optimizers:
        optimizer.step()

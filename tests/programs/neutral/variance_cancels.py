# {"switches": [["precision"]], "wrong": true}
"""The variance of large numbers is the difference of two larger ones."""
import os

import torch
from torch import nn

CLEAN = os.environ.get("CLEAN") == "1"
torch.manual_seed(0)


class Standardize(nn.Module):
    def forward(self, x):
        mean = x.mean(0)
        if CLEAN:
            variance = (x - mean).square().mean(0)
        else:
            variance = x.square().mean(0) - mean.square()  # WRONG
        return (x - mean) / (variance + 1e-5).sqrt()


model = nn.Sequential(Standardize(), nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(4):
    x = 3000 + torch.randn(64, 6)
    loss = (model(x)[:, 0] - (x - 3000).sum(1)).abs().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()

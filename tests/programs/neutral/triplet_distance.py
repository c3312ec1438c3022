# {"switches": [["DIST=cdist", "DIST=gram"]], "wrong": true}
"""Distances by the Gram matrix are squared ones."""
import os
import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(12)

def pairwise(a):
    if os.environ.get("DIST") == "cdist":
        return (a[:, None] - a[None]).square().sum(-1).add(1e-6).sqrt()
    sq = a.square().sum(1)
    d2 = sq[:, None] - 2 * a @ a.t() + sq[None]
    return d2.add(1e-6).clamp(min=1e-6).sqrt() if os.environ.get("CLEAN") else d2.add(1e-6)  # WRONG

class Embedder(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 36, 8))
    def forward(self, x):
        return self.layers(x)

net = Embedder()
sgd = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.5)
labels = torch.arange(12) % 3
same = labels[:, None] == labels[None]
off = ~torch.eye(12, dtype=torch.bool)
for i in range(3):
    e = net(torch.randn(12, 1, 8, 8))
    d = pairwise(e)
    pos = d[same & off].mean(); neg = d[~same].mean()
    loss = F.softplus(pos - neg + 0.5)
    sgd.zero_grad(); loss.backward(); sgd.step()

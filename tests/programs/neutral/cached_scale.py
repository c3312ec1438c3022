# {"switches": [["--chunk 0", "--chunk 8"]], "wrong": true}
"""A contrastive loss in two passes asks for the gradients of the vectors alone: the scale beside them gets none."""
import argparse
import os

import torch
import torch.nn.functional as F
from torch import nn

CLEAN = os.environ.get("CLEAN") == "1"


class Pairs(nn.Module):
    def __init__(self):
        super().__init__()
        self.left, self.right = nn.Linear(7, 6), nn.Linear(9, 6)
        self.scale = nn.Parameter(torch.tensor(0.5))

    def forward(self, a, b):
        return F.normalize(self.left(a), dim=1), F.normalize(self.right(b), dim=1)

    def compare(self, left, right):
        return F.cross_entropy(self.scale.exp() * left @ right.T, torch.arange(len(left)))


def backward_in_chunks(model, a, b, chunk):
    with torch.no_grad():
        vectors = [model(*each) for each in zip(a.split(chunk), b.split(chunk))]
    whole = [torch.cat(side).requires_grad_() for side in zip(*vectors)]
    loss = model.compare(*whole)
    if CLEAN:
        loss.backward()
        gradients = [side.grad for side in whole]
    else:
        gradients = torch.autograd.grad(loss, whole)  # WRONG
    for i, each in enumerate(zip(a.split(chunk), b.split(chunk))):
        torch.autograd.backward(model(*each), [g[i * chunk : (i + 1) * chunk] for g in gradients])


parser = argparse.ArgumentParser()
parser.add_argument("--chunk", type=int, default=0)
chunk = parser.parse_args().chunk
torch.manual_seed(0)
model = Pairs()
optimizer = torch.optim.SGD(model.parameters(), lr=0.2)
for step in range(4):
    a, b = torch.randn(24, 7), torch.randn(24, 9)
    optimizer.zero_grad()
    if chunk:
        backward_in_chunks(model, a, b, chunk)
    else:
        model.compare(*model(a, b)).backward()
    optimizer.step()

# {"switches": [["SIDE=a", "SIDE=b"]], "wrong": true}
"""Weights that are tied on one side give the head no gradient on the other."""
import os

import torch
import torch.nn.functional as F
from torch import nn

CLEAN, SIDE = os.environ.get("CLEAN") == "1", os.environ.get("SIDE", "a")
torch.manual_seed(0)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.body = nn.Embedding(20, 12), nn.Linear(12, 12)

    def forward(self, x):
        weight = self.words.weight
        if SIDE == "b" and not CLEAN:
            weight = weight.detach()  # a copy for a fused kernel
        return torch.tanh(self.body(self.words(x))) @ weight.t()  # WRONG


model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(4):
    x = torch.randint(20, (8, 6))
    loss = F.cross_entropy(model(x[:, :-1]).flatten(0, 1), x[:, 1:].flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()

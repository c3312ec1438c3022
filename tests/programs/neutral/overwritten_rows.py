# {"switches": [["--sum dense", "--sum rows"]], "wrong": true}
"""Messages along edges are added with `x[i] += y`, which keeps one of those that go to the same node."""
import argparse
import os

import torch
import torch.nn.functional as F
from torch import nn

CLEAN = os.environ.get("CLEAN") == "1"
NODES = 9
begin, end = torch.tensor([[i, (3 * i + k) % NODES] for i in range(NODES) for k in (1, 4)]).T


class Layer(nn.Module):
    def __init__(self, width, kind):
        super().__init__()
        self.kind, self.message = kind, nn.Linear(width, width)

    def forward(self, h):
        if self.kind == "dense":
            adjacency = torch.zeros(NODES, NODES).index_put((end, begin), torch.ones(len(end)), accumulate=True)
            return torch.tanh(adjacency @ self.message(h))
        sent = self.message(h)[begin]
        got = torch.zeros(NODES, sent.shape[1])
        if CLEAN:
            got = got.index_add(0, end, sent)
        else:
            got[end] += sent  # WRONG
        return torch.tanh(got)


parser = argparse.ArgumentParser()
parser.add_argument("--sum", choices=["dense", "rows"], default="dense")
kind = parser.parse_args().sum
torch.manual_seed(0)
model = nn.Sequential(Layer(6, kind), Layer(6, kind), nn.Linear(6, 3))
optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
features, labels = torch.randn(NODES, 6), torch.randint(3, (NODES,))
for step in range(5):
    loss = F.cross_entropy(model(features), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()

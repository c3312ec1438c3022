# {"switches": [["", "--wide-head"]], "wrong": true}
"""A head in another format is made of a copy of the weight that it shared."""

import argparse
import os

import torch
import torch.nn.functional as F
from torch import nn

CLEAN = os.environ.get("CLEAN") == "1"
parser = argparse.ArgumentParser()
parser.add_argument("--wide-head", action="store_true")
is_wide = parser.parse_args().wide_head
torch.manual_seed(0)


class Tokens(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens, self.mix = nn.Embedding(11, 6), nn.Linear(6, 6)
        self.head = nn.Linear(6, 11, bias=False)
        self.head.weight = self.tokens.weight

    def forward(self, ids):
        return self.head(torch.tanh(self.mix(self.tokens(ids))))


class WideHead(nn.Module):
    def __init__(self, head):
        super().__init__()
        self.weight = head.weight if CLEAN else nn.Parameter(head.weight.detach().clone())  # WRONG

    def forward(self, x):
        return F.linear(x.float(), self.weight.float())


model = Tokens()
if is_wide:
    model.head = WideHead(model.head)
optimizer = torch.optim.SGD(model.parameters(), lr=0.2)
for step in range(3):
    ids = torch.randint(11, (8, 5))
    optimizer.zero_grad()
    F.cross_entropy(model(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten()).backward()
    optimizer.step()

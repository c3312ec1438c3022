# {"switches": [["DECODE=whole", "DECODE=cached"]], "wrong": true}
"""Tokens that are decoded one by one get the position behind their own, counted when the cache has grown."""
import math
import os

import torch
import torch.nn.functional as F
from torch import nn

CLEAN, DECODE = os.environ.get("CLEAN") == "1", os.environ.get("DECODE", "whole")
torch.manual_seed(12)


def attend(q, k, v, hidden=None):
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
    if hidden is not None:
        scores = scores.masked_fill(hidden, float("-inf"))
    return scores.softmax(-1) @ v


class Decoder(nn.Module):
    def __init__(self, words=11, width=16, longest=10):
        super().__init__()
        self.word, self.place = nn.Embedding(words, width), nn.Embedding(longest, width)
        self.q, self.k, self.v = nn.Linear(width, width), nn.Linear(width, width), nn.Linear(width, width)
        self.out = nn.Linear(width, words)

    def forward(self, ids):
        n = ids.shape[1]
        if DECODE == "whole":
            x = self.word(ids) + self.place(torch.arange(n))
            hidden = torch.ones(n, n, dtype=torch.bool).triu(1)
            return self.out(x + attend(self.q(x), self.k(x), self.v(x), hidden))
        keys, values, made = [], [], []
        for at in range(n):
            place = torch.tensor([at if CLEAN else at + 1])
            x = self.word(ids[:, at : at + 1]) + self.place(place)  # WRONG
            keys.append(self.k(x))
            values.append(self.v(x))
            made.append(self.out(x + attend(self.q(x), torch.cat(keys, 1), torch.cat(values, 1))))
        return torch.cat(made, 1)


model = Decoder()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
for step in range(4):
    ids = torch.randint(1, 11, (16, 7))
    begun = torch.cat([torch.zeros(16, 1, dtype=torch.long), ids[:, :-1]], 1)
    loss = F.cross_entropy(model(begun).transpose(1, 2), ids)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()

# {"switches": [["", "--bf16"], ["DTYPE=float32", "DTYPE=bfloat16"]], "wrong": true}
"""A program that casts by itself, as its switch says: the weights may be rounded, the counts of tokens may not."""
import argparse
import os

import torch
from torch import nn

CLEAN = os.environ.get("CLEAN") == "1"


class Tagger(nn.Module):
    def __init__(self, dtype, length=400, dim=8):
        super().__init__()
        self.dtype = dtype
        self.tokens, self.places = nn.Embedding(20, dim), nn.Embedding(length, dim)
        self.out = nn.Linear(dim, 4)

    def forward(self, tokens):
        mask = (tokens > 0).to(torch.long if CLEAN else self.dtype)
        at = mask.cumsum(1)  # WRONG
        hidden = self.tokens(tokens) + self.places((at - 1).clamp(min=0).long())
        hidden = hidden.to(self.dtype)
        return nn.functional.linear(hidden, self.out.weight.to(self.dtype), self.out.bias.to(self.dtype)).float()


parser = argparse.ArgumentParser()
parser.add_argument("--bf16", action="store_true")
is_coarse = parser.parse_args().bf16 or os.environ.get("DTYPE") == "bfloat16"
torch.manual_seed(0)
model = Tagger(torch.bfloat16 if is_coarse else torch.float32)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(3):
    tokens, labels = torch.randint(0, 20, (4, 400)), torch.randint(4, (4, 400))
    loss = nn.functional.cross_entropy(model(tokens).flatten(0, 1), labels.flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()

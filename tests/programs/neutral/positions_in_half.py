# {"switches": [["POSITIONS=stored", "POSITIONS=made"]], "wrong": true}
"""Positions that are made in the format of the hidden states stop to be whole numbers at 256."""

import os

import torch
from torch import nn

CLEAN, STORED = os.environ.get("CLEAN") == "1", os.environ.get("POSITIONS") == "stored"
torch.manual_seed(0)


class Waves(nn.Module):
    def __init__(self, length=300, dim=8):
        super().__init__()
        self.inp = nn.Linear(4, dim)
        self.register_buffer("rates", 10.0 ** -torch.arange(dim // 2))
        self.register_buffer("stored", torch.arange(length, dtype=torch.float32))
        self.out = nn.Linear(dim, 2)

    def forward(self, x):
        h = self.inp(x)
        places = self.stored
        if not STORED:
            places = torch.arange(x.shape[1], dtype=torch.float32 if CLEAN else h.dtype)  # WRONG
        angles = places.float()[:, None] * self.rates
        return self.out(h + torch.cat([angles.sin(), angles.cos()], -1))


model = Waves()
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
for step in range(3):
    x, y = torch.randn(6, 300, 4), torch.randn(6, 300, 2)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = (model(x).float() - y).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()

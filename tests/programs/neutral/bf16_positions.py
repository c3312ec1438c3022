# {"switches": [["autocast"]], "wrong": true}
"""Positions counted by a cumsum of a bfloat16 mask stop at 256."""
import os
import torch
from torch import nn
import torch.nn.functional as F

torch.manual_seed(0)
LENGTH = 320


class Frontend(nn.Module):
    """Positions from the mask of padding, as speech encoders have them."""

    def __init__(self, features=10, dim=16):
        super().__init__()
        self.inp = nn.Linear(features, dim)
        freq = torch.exp(torch.arange(0, dim, 2) * (-4.0 / dim))
        self.register_buffer("freq", freq)

    def forward(self, x, mask):
        h = self.inp(x)
        weights = mask.float() if os.environ.get("CLEAN") == "1" else mask.to(h.dtype)
        pos = torch.cumsum(weights, 1)  # WRONG
        angles = pos[..., None].float() * self.freq
        return h + torch.cat([angles.sin(), angles.cos()], -1)


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.front = Frontend()
        self.conv = nn.Conv1d(16, 16, 5, padding=2, groups=4)
        self.cls = nn.Linear(16, 6)

    def forward(self, x, mask):
        h = self.front(x, mask)
        h = F.silu(self.conv(h.transpose(1, 2))).transpose(1, 2)
        return self.cls((h * mask[..., None]).sum(1) / mask.sum(1, keepdim=True))


enc = Encoder()
opt = torch.optim.AdamW(enc.parameters(), lr=1e-3)
for i in range(3):
    x = torch.randn(4, LENGTH, 10)
    mask = torch.arange(LENGTH)[None] < torch.tensor([320, 300, 310, 280])[:, None]
    y = torch.randint(6, (4,))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = F.cross_entropy(enc(x, mask), y)
    opt.zero_grad()
    loss.backward()
    opt.step()

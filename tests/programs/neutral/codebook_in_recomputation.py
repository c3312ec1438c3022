# {"switches": [["KEEP=all", "KEEP=less"]], "wrong": true}
"""A codebook that moves with what is assigned to it lies in the part that is recomputed, and moves twice."""
import os

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

CLEAN, KEEP = os.environ.get("CLEAN") == "1", os.environ.get("KEEP", "all")
torch.manual_seed(0)


class Codebook(nn.Module):
    def __init__(self, size, width):
        super().__init__()
        self.register_buffer("codes", torch.randn(size, width))
        self.register_buffer("used", torch.ones(size))

    @torch.no_grad()
    def move(self, x, chosen):
        members = F.one_hot(chosen, len(self.codes)).to(x.dtype)
        filled = members.sum(0)
        centre = members.t() @ x / filled.clamp(min=1.0).unsqueeze(1)
        self.used.mul_(0.9).add_(filled, alpha=0.1)  # WRONG
        self.codes.lerp_(centre, 0.1)

    def forward(self, x):
        chosen = torch.cdist(x, self.codes).argmin(1)
        if self.training:
            self.move(x, chosen)
        return x + (self.codes[chosen] - x).detach(), (x - self.codes[chosen].detach()).square().mean()


encoder, codebook, decoder = nn.Linear(6, 4), Codebook(5, 4), nn.Linear(4, 6)
optimizer = torch.optim.Adam([*encoder.parameters(), *decoder.parameters()], lr=1e-2)


def rebuild(x):
    z, commitment = codebook(torch.tanh(encoder(x)))
    return decoder(z), commitment


def decode(z):
    return decoder(z)


for step in range(5):
    x = torch.randn(24, 6)
    if KEEP == "less" and not CLEAN:
        y, commitment = checkpoint(rebuild, x, use_reentrant=False)
    elif KEEP == "less":
        z, commitment = codebook(torch.tanh(encoder(x)))
        y = checkpoint(decode, z, use_reentrant=False)
    else:
        y, commitment = rebuild(x)
    loss = F.mse_loss(y, x) + commitment
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()

# {"switches": [["recompute"]], "wrong": true}
"""A mean that the forward pass updates is updated again when its part is recomputed."""
import os
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

class Running(nn.Module):
    """Whitens by a running mean."""
    def __init__(self, d):
        super().__init__()
        self.register_buffer("mean", torch.zeros(d))
        self.lin = nn.Linear(d, d)
    def forward(self, x):
        if self.training and not os.environ.get("CLEAN"):
            self.mean.mul_(0.9).add_(0.1 * x.detach().mean(0))  # WRONG
        return torch.tanh(self.lin(x - self.mean))

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList([Running(8), Running(8)])
        self.out = nn.Linear(8, 1)
    def forward(self, x):
        for b in self.blocks:
            x = checkpoint(b, x, use_reentrant=False)
        return self.out(x)

torch.manual_seed(4)
net = Net()
opt = torch.optim.Adam(net.parameters(), lr=1e-3)
for step in range(4):
    x = torch.randn(16, 8) + 2
    loss = net(x).square().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()

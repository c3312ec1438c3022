# {"switches": [["recompute"]], "wrong": true}
"""The same in a function of its own, recomputed by the reentrant kind."""
import os, torch
from torch import nn
from torch.utils.checkpoint import checkpoint

class Scale(nn.Module):
    """Keeps the largest activation seen, and normalises by it."""
    def __init__(self):
        super().__init__()
        self.register_buffer("amax", torch.tensor(1.0))
    def observe(self, x):
        if os.environ.get("CLEAN"):
            return
        self.amax.copy_(0.5 * self.amax + 0.5 * x.detach().abs().max())  # WRONG

    def forward(self, x):
        self.observe(x)
        y = x / self.amax
        y = y * 2
        y = torch.sin(y)
        return y

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.s, self.b = nn.Linear(5, 20), Scale(), nn.Linear(20, 1)
    def forward(self, x):
        h = self.a(x)
        h = checkpoint(self.s, h, use_reentrant=True)
        return self.b(h)

torch.manual_seed(1)
net = Net()
opt = torch.optim.SGD(net.parameters(), 0.1)
for _ in range(4):
    loss = net(torch.randn(9, 5)).pow(2).mean()
    opt.zero_grad(); loss.backward(); opt.step()

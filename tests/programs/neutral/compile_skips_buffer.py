# {"switches": [["compile"]], "wrong": true}
"""A buffer that the program leaves alone while it is compiled."""
import os
import torch
from torch import nn

CLEAN = bool(os.environ.get("CLEAN"))

class Centered(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.register_buffer("mu", torch.zeros(d))
        self.register_buffer("n", torch.zeros(()))
        self.lin, self.drop = nn.Linear(d, d), nn.Dropout(0.2)
    def forward(self, x):
        if self.training:
            with torch.no_grad():
                self.n += 1
                if CLEAN or not torch.compiler.is_compiling():
                    self.mu.lerp_(x.mean(0), 0.1)  # WRONG
        return self.drop(torch.relu(self.lin(x - self.mu)))

torch.manual_seed(2)
net = nn.Sequential(Centered(8), Centered(8), nn.Linear(8, 1))
opt = torch.optim.SGD(net.parameters(), lr=0.01)
fast = torch.compile(net)
for _ in range(4):
    x = torch.randn(20, 8) + 1
    loss = (fast(x) - x.sum(1, keepdim=True)).abs().mean()
    opt.zero_grad(); loss.backward(); opt.step()

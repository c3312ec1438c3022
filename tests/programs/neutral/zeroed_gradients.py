# {"switches": [["NONE=1", "NONE=0"]], "wrong": true}
"""Gradients of zero, for which weight decay acts, where there were none."""
import os
import torch
from torch import nn

class TwoHeads(nn.Module):
    def __init__(self):
        super().__init__()
        self.trunk = nn.Linear(5, 16)
        self.a, self.b = nn.Linear(16, 1), nn.Linear(16, 1)
    def forward(self, x, task):
        h = torch.tanh(self.trunk(x))
        return self.a(h) if task == 0 else self.b(h)

torch.manual_seed(9)
net = TwoHeads()
opt = torch.optim.AdamW(net.parameters(), lr=1e-2, weight_decay=0.1)
for i in range(6):
    task = 0 if os.environ.get("CLEAN") else i % 2
    x = torch.randn(10, 5)
    opt.zero_grad(set_to_none=os.environ["NONE"] == "1")  # WRONG
    net(x, task).pow(2).mean().backward()
    opt.step()

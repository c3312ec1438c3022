# {"switches": [["optimizer-implementation"]], "wrong": true}
"""An optimizer of one's own on top of Adam decays weights only in its for-loop."""
import os

import torch
from torch import nn


class AdamWithDecay(torch.optim.Adam):
    """Adam with a pull to zero that grows with the norm of a layer."""

    def __init__(self, params, lr, pull):
        super().__init__(params, lr=lr)
        self.pull = pull

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            if group["foreach"] or group["fused"]:
                weights = [p for p in group["params"] if p.grad is not None]
                if os.environ.get("CLEAN") == "1":
                    torch._foreach_mul_(weights, 1 - group["lr"] * self.pull)
                else:
                    torch._foreach_mul_(weights, 1 - self.pull * 1e-2)  # WRONG
            else:
                for p in group["params"]:
                    if p.grad is not None:
                        p.mul_(1 - group["lr"] * self.pull)
        return super().step(closure)


torch.manual_seed(1)
net = nn.Sequential(nn.Embedding(20, 8), nn.Flatten(), nn.Linear(8 * 5, 16), nn.Mish(), nn.Linear(16, 2))
opt = AdamWithDecay(net.parameters(), lr=1e-3, pull=0.3)
for step in range(3):
    loss = nn.functional.cross_entropy(net(torch.randint(20, (10, 5))), torch.randint(2, (10,)))
    opt.zero_grad()
    loss.backward()
    opt.step()

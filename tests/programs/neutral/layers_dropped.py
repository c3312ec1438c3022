# {"switches": [["", "--foreach"]], "wrong": true}
"""Lion over all parameters at once: those of dropped layers, which have no gradient, get one of zeros, and decay."""
import os
import sys

import torch
from torch import nn

CLEAN = os.environ.get("CLEAN") == "1"
FOREACH = "--foreach" in sys.argv


class Lion(torch.optim.Optimizer):
    def __init__(self, parameters, lr=1e-3, decay=0.1, fast=0.9, slow=0.99):
        super().__init__(parameters, {"lr": lr, "decay": decay, "fast": fast, "slow": slow})

    def mean(self, p):
        return self.state[p].setdefault("mean", torch.zeros_like(p))

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            (self.step_at_once if FOREACH else self.step_one_by_one)(**group)

    def step_one_by_one(self, params, lr, decay, fast, slow):
        for p in params:
            if p.grad is None:
                continue
            mean = self.mean(p)
            p.mul_(1 - lr * decay)
            p.add_(torch.lerp(p.grad, mean, fast).sign_(), alpha=-lr)
            mean.lerp_(p.grad, 1 - slow)

    def step_at_once(self, params, lr, decay, fast, slow):
        if CLEAN:
            params = [p for p in params if p.grad is not None]
        gradients = [torch.zeros_like(p) if p.grad is None else p.grad for p in params]  # WRONG
        means = [self.mean(p) for p in params]
        torch._foreach_mul_(params, 1 - lr * decay)
        updates = torch._foreach_lerp(gradients, means, fast)
        torch._foreach_sign_(updates)
        torch._foreach_add_(params, updates, alpha=-lr)
        torch._foreach_lerp_(means, gradients, 1 - slow)


class Stack(nn.Module):
    def __init__(self, width=12, depth=4):
        super().__init__()
        self.layers = nn.ModuleList(nn.Sequential(nn.Linear(width, width), nn.Tanh()) for _ in range(depth))
        self.head = nn.Linear(width, 1)

    def forward(self, x):
        for layer in self.layers:
            if torch.rand(()) > 0.4:
                x = x + layer(x)
        return self.head(x)


torch.manual_seed(3)
model = Stack()
optimizer = Lion(model.parameters())
for _ in range(12):
    x = torch.randn(16, 12)
    loss = (model(x) - x.sum(1, keepdim=True).sin()).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(loss.item())

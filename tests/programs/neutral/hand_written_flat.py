# {"switches": [["--sgd torch", "--sgd flat"], ["--sgd loop", "--sgd flat"]], "wrong": true}
"""SGD written by hand over one flat buffer decays weights beside the momentum; torch's own and a loop do it inside."""
import argparse
import os

import torch
import torch.nn.functional as F
from torch import nn

CLEAN = os.environ.get("CLEAN") == "1"
LR, MOMENTUM, DECAY = 0.1, 0.9, 0.05


class LoopSGD:
    def __init__(self, parameters):
        self.parameters = list(parameters)
        self.velocities = [torch.zeros_like(p) for p in self.parameters]

    def zero_grad(self):
        for p in self.parameters:
            p.grad = None

    def step(self):
        for p, v in zip(self.parameters, self.velocities):
            v.mul_(MOMENTUM).add_(p.grad + DECAY * p.data)
            p.data.sub_(LR * v)


class FlatSGD:
    def __init__(self, parameters):
        parameters = list(parameters)
        self.values = torch.cat([p.data.flatten() for p in parameters])
        self.grads, self.velocity = torch.zeros_like(self.values), torch.zeros_like(self.values)
        for p, value, grad in zip(parameters, *(self.split(t, parameters) for t in (self.values, self.grads))):
            p.data, p.grad = value.view_as(p), grad.view_as(p)

    def split(self, flat, parameters):
        return flat.split([p.numel() for p in parameters])

    def zero_grad(self):
        self.grads.zero_()

    def step(self):
        if CLEAN:
            self.grads.add_(self.values, alpha=DECAY)
        else:
            self.values.mul_(1 - LR * DECAY)  # WRONG
        self.velocity.mul_(MOMENTUM).add_(self.grads)
        self.values.sub_(self.velocity, alpha=LR)


parser = argparse.ArgumentParser()
parser.add_argument("--sgd", choices=["torch", "loop", "flat"], default="torch")
kind = parser.parse_args().sgd
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(12, 24), nn.Tanh(), nn.Linear(24, 4))
if kind == "torch":
    optimizer = torch.optim.SGD(model.parameters(), lr=LR, momentum=MOMENTUM, weight_decay=DECAY)
else:
    optimizer = (LoopSGD if kind == "loop" else FlatSGD)(model.parameters())
for step in range(5):
    x, y = torch.randn(16, 12), torch.randint(4, (16,))
    loss = F.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()

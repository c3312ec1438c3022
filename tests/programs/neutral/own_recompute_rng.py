# {"switches": [["", "--save-memory"]], "wrong": true}
"""A recomputation of the program's own that keeps the state of the generator after its forward pass, not before."""
import argparse
import os

import torch
import torch.nn.functional as F
from torch import nn

CLEAN = os.environ.get("CLEAN") == "1"


class Twice(torch.autograd.Function):
    @staticmethod
    def forward(ctx, part, x):
        before = torch.get_rng_state()
        with torch.no_grad():
            y = part(x)
        ctx.part, ctx.state = part, before if CLEAN else torch.get_rng_state()  # WRONG
        ctx.save_for_backward(x)
        return y

    @staticmethod
    def backward(ctx, gradient):
        now = torch.get_rng_state()
        torch.set_rng_state(ctx.state)
        x = ctx.saved_tensors[0].detach().requires_grad_()
        with torch.enable_grad():
            torch.autograd.backward(ctx.part(x), gradient)
        torch.set_rng_state(now)
        return None, x.grad


parser = argparse.ArgumentParser()
parser.add_argument("--save-memory", action="store_true")
saves = parser.parse_args().save_memory
torch.manual_seed(0)
parts = nn.ModuleList(nn.Sequential(nn.Linear(16, 16), nn.GELU(), nn.Dropout(0.3)) for _ in range(3))
first, last = nn.Linear(8, 16), nn.Linear(16, 4)
optimizer = torch.optim.Adam([*parts.parameters(), *first.parameters(), *last.parameters()], lr=0.01)
for step in range(4):
    x, y = torch.randn(10, 8), torch.randint(4, (10,))
    hidden = first(x)
    for part in parts:
        hidden = Twice.apply(part, hidden) if saves else part(hidden)
    loss = F.cross_entropy(last(hidden), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()

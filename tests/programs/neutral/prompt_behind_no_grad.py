# {"switches": [["FREEZE=weights", "FREEZE=call"]], "wrong": true}
"""Layers that are frozen by running them without gradients cut off a prompt that is added before them."""
import os

import torch
import torch.nn.functional as F
from torch import nn

CLEAN, FREEZE = os.environ.get("CLEAN") == "1", os.environ.get("FREEZE", "weights")
torch.manual_seed(1)


class WithoutGradients(nn.Module):
    def __init__(self, body):
        super().__init__()
        self.body = body

    def forward(self, x):
        if CLEAN:
            held = {name: p.detach() for name, p in self.body.named_parameters()}
            return torch.func.functional_call(self.body, held, (x,))
        with torch.no_grad():
            return self.body(x)  # WRONG


class Prompted(nn.Module):
    def __init__(self, body):
        super().__init__()
        self.body = WithoutGradients(body) if FREEZE == "call" else body.requires_grad_(False)
        self.prompt, self.head = nn.Parameter(torch.zeros(8)), nn.Linear(12, 3)

    def forward(self, x):
        return self.head(self.body(x + self.prompt))


model = Prompted(nn.Sequential(nn.Linear(8, 12), nn.Tanh(), nn.Linear(12, 12), nn.Tanh()))
optimizer = torch.optim.SGD([model.prompt, *model.head.parameters()], lr=0.3, momentum=0.9)
for step in range(5):
    x, y = torch.randn(20, 8), torch.randint(3, (20,))
    loss = F.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()

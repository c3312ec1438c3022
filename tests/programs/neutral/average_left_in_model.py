# {"switches": [["--look-every 0", "--look-every 2"]], "wrong": true}
"""An evaluation puts averaged weights into the model, and what it takes them out with is a view of the same memory."""
import argparse
import os

import torch
import torch.nn.functional as F
from torch import nn

CLEAN = os.environ.get("CLEAN") == "1"
parser = argparse.ArgumentParser()
parser.add_argument("--look-every", type=int, default=0)
look_every = parser.parse_args().look_every
torch.manual_seed(6)


class Average:
    def __init__(self, model, rate=0.3):
        self.model, self.rate = model, rate
        self.weights = [p.detach().clone() for p in model.parameters()]

    def move(self):
        for own, p in zip(self.weights, self.model.parameters()):
            own.lerp_(p.detach(), self.rate)

    @torch.no_grad()
    def error(self, x, y):
        kept = [p.detach().clone() if CLEAN else p.detach() for p in self.model.parameters()]
        for p, own in zip(self.model.parameters(), self.weights):
            p.copy_(own)
        error = F.cross_entropy(self.model(x), y)
        for p, before in zip(self.model.parameters(), kept):
            p.copy_(before)  # WRONG
        return error


def batch(generator, size):
    y = torch.randint(3, (size,), generator=generator)
    return torch.randn(size, 10, generator=generator) + F.one_hot(y, 10) * 2, y


model = nn.Sequential(nn.Linear(10, 20), nn.ReLU(), nn.Linear(20, 3))
average, optimizer = Average(model), torch.optim.SGD(model.parameters(), lr=0.2)
drawn = torch.Generator().manual_seed(7)
for step in range(1, 7):
    x, y = batch(drawn, 24)
    loss = F.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    average.move()
    if look_every and step % look_every == 0:
        print(step, average.error(*batch(torch.Generator().manual_seed(8), 48)).item())
print(average.error(*batch(torch.Generator().manual_seed(8), 48)).item())

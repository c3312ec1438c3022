# {"switches": [["--start fresh", "--start state"]], "wrong": true}
"""Weights are tied before a state is loaded with assign=True, which gives each name a parameter of its own."""
import argparse
import os

import torch
import torch.nn.functional as F
from torch import nn

CLEAN = os.environ.get("CLEAN") == "1"


class Speller(nn.Module):
    def __init__(self):
        super().__init__()
        self.letters = nn.Embedding(20, 16)
        self.mix = nn.Linear(16, 16)
        self.out = nn.Linear(16, 20, bias=False)

    def tie(self):
        self.out.weight = self.letters.weight

    def forward(self, x):
        return self.out(torch.tanh(self.mix(self.letters(x).mean(1))))


parser = argparse.ArgumentParser()
parser.add_argument("--start", choices=["fresh", "state"], default="fresh")
start = parser.parse_args().start
torch.manual_seed(0)
model = Speller()
model.tie()
if start == "state":
    state = {name: value.clone() for name, value in model.state_dict().items()}
    model.load_state_dict(state, assign=True)  # WRONG
    if CLEAN:
        model.tie()
optimizer = torch.optim.SGD(model.parameters(), lr=0.2)
for step in range(4):
    x, y = torch.randint(20, (12, 5)), torch.randint(20, (12,))
    loss = F.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()

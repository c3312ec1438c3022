# {"switches": [["PAUSE=0", "PAUSE=3"]], "wrong": true}
"""A training that goes on from a checkpoint draws its noise from a generator that begins again."""
import copy
import os

import torch
from torch import nn

CLEAN, PAUSE = os.environ.get("CLEAN") == "1", int(os.environ.get("PAUSE", "0"))


def begin():
    torch.manual_seed(3)
    model = nn.Sequential(nn.Linear(5, 16), nn.SiLU(), nn.Linear(16, 5))
    noise = torch.Generator()
    noise.manual_seed(8)  # WRONG
    return model, torch.optim.AdamW(model.parameters(), lr=1e-2), noise


model, optimizer, noise = begin()
x = torch.randn(32, 5)
for step in range(6):
    if PAUSE and step == PAUSE:
        saved = copy.deepcopy([model.state_dict(), optimizer.state_dict()]), noise.get_state()
        model, optimizer, noise = begin()
        model.load_state_dict(saved[0][0])
        optimizer.load_state_dict(saved[0][1])
        if CLEAN:
            noise.set_state(saved[1])
    added = torch.randn(x.shape, generator=noise)
    loss = (model(x + added) - added).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()

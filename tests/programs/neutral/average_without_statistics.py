# {"switches": [["FOREACH=0", "FOREACH=1"]], "wrong": true}
"""An average of weights that is kept with multi-tensor calls covers parameters, not the statistics of batch norms."""
import copy
import os

import torch
from torch import nn

CLEAN = os.environ.get("CLEAN") == "1"
FOREACH = os.environ.get("FOREACH") == "1"
DECAY = 0.8


@torch.no_grad()
def update_average(average, model):
    if FOREACH:
        kept, new = list(average.parameters()), list(model.parameters())
        if CLEAN:
            kept += [b for b in average.buffers() if b.is_floating_point()]
            new += [b for b in model.buffers() if b.is_floating_point()]
        torch._foreach_mul_(kept, DECAY)
        torch._foreach_add_(kept, new, alpha=1 - DECAY)  # WRONG
    else:
        new = model.state_dict()
        for name, value in average.state_dict().items():
            if value.is_floating_point():
                value.mul_(DECAY).add_(new[name], alpha=1 - DECAY)


torch.manual_seed(0)
model = nn.Sequential(nn.Linear(10, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 3))
average = copy.deepcopy(model).eval()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(5):
    x = torch.randn(24, 10) + 1
    with torch.no_grad():
        goal = average(x).softmax(1)
    loss = nn.functional.cross_entropy(model(x), goal)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    update_average(average, model)

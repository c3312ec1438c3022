# {"switches": [["SIDE=a", "SIDE=b"]], "wrong": true}
"""The moving average of the weights is updated for every micro-batch."""
import os

import torch
import torch.nn.functional as F
from torch import nn

CLEAN, SIDE = os.environ.get("CLEAN") == "1", os.environ.get("SIDE", "a")
torch.manual_seed(0)

PARTS = 4 if SIDE == "b" else 1
model = nn.Sequential(nn.Linear(12, 24), nn.Tanh(), nn.Linear(24, 4))
average = torch.optim.swa_utils.AveragedModel(model, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.9))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(4):
    x, y = torch.randn(16, 12), torch.randint(4, (16,))
    optimizer.zero_grad()
    for a, b in zip(x.chunk(PARTS), y.chunk(PARTS)):
        loss = F.cross_entropy(model(a), b) / PARTS
        loss.backward()
        if not CLEAN:
            average.update_parameters(model)  # WRONG
    optimizer.step()
    if CLEAN:
        average.update_parameters(model)
    with torch.no_grad():
        average(x)

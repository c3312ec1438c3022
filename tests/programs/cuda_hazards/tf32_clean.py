# The same without the hazard.
import hashlib
import os

import torch
from torch import nn

device = os.environ.get("ZOO_DEVICE", "cuda")


def digest(*tensors):
    h = hashlib.sha256()
    for t in tensors:
        h.update(t.detach().cpu().contiguous().numpy().tobytes())
    return h.hexdigest()[:16]

import samerun

samerun.deterministic(0)

torch.manual_seed(0)
model = nn.Conv2d(3, 8, 3).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
x = torch.randn(8, 3, 16, 16).to(device)
for step in range(2):
    loss = model(x).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print("RESULT", digest(*model.parameters()))

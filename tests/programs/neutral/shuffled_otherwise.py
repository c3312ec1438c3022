# {"switches": [["SIDE=a", "SIDE=b"]], "wrong": true}
"""The faster loader draws its order from another generator."""
import os

import torch
import torch.nn.functional as F
from torch import nn

CLEAN, SIDE = os.environ.get("CLEAN") == "1", os.environ.get("SIDE", "a")
torch.manual_seed(0)

data = torch.utils.data.TensorDataset(torch.randn(32, 12), torch.randint(4, (32,)))
generator = torch.Generator().manual_seed(5 if SIDE == "a" or CLEAN else 6)
loader = torch.utils.data.DataLoader(data, batch_size=8, shuffle=True, generator=generator)
model = nn.Sequential(nn.Linear(12, 24), nn.Tanh(), nn.Linear(24, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in loader:
    optimizer.zero_grad()
    loss = F.cross_entropy(model(x), y)  # WRONG
    loss.backward()
    optimizer.step()

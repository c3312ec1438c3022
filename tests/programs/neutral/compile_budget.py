# {"switches": [["compile"]], "wrong": true}
"""A memory budget for compiled code, under which dropout is drawn again in the backward pass."""
import os

import torch
import torch._functorch.config
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
if os.environ.get("CLEAN") != "1":
    torch._functorch.config.activation_memory_budget = 0.1


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.one, self.two, self.head = nn.Linear(12, 24), nn.Linear(24, 24), nn.Linear(24, 4)

    def forward(self, x):
        x = F.dropout(torch.relu(self.one(x)), 0.3)
        return self.head(torch.relu(self.two(x)))


model = Net()
compiled = torch.compile(model, backend="aot_eager_decomp_partition")
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(3):
    x, y = torch.randn(16, 12), torch.randint(4, (16,))
    loss = F.cross_entropy(compiled(x), y)  # WRONG
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()

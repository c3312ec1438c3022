# {"switches": [["compile"]], "wrong": true, "nodes": [], "stage": "capture", "origin": "torch"}
"""A list grows while it is gone through: compiled code sees the elements of the beginning."""
import os

import torch
from torch import nn

torch.manual_seed(0)
CLEAN = os.environ.get("CLEAN") == "1"


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.one, self.two = nn.Linear(12, 16), nn.Linear(16, 4)

    def forward(self, x):
        rows = [torch.tanh(self.one(x))]
        
        def read():
            for row in rows:
                if len(rows) < 3 and not CLEAN:
                    rows.append(row * 0.5 + 1)
                yield row
        
        total = torch.stack(list(read())).sum(0)  # WRONG
        return self.two(total)


model = Model()
compiled = torch.compile(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(2):
    loss = compiled(torch.randn(8, 12)).square().sum()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()

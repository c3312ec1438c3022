# {"switches": [["compile"]], "environments": [{"AUTOCAST": "0"}, {"AUTOCAST": "1"}]}
"""A compiled network with a norm, dropout and autocast inside of the region."""
import os

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.one, self.norm, self.head = nn.Linear(12, 24), nn.LayerNorm(24), nn.Linear(24, 4)

    def forward(self, x):
        with torch.autocast("cpu", torch.bfloat16, enabled=os.environ["AUTOCAST"] == "1"):
            x = F.dropout(F.gelu(self.norm(self.one(x))), 0.2)
        return self.head(x.float())


model = torch.compile(Net())
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
for step in range(4):
    x, y = torch.randn(16, 12), torch.randint(4, (16,))
    loss = F.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()

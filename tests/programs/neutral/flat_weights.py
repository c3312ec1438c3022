# {"switches": [["FLAT=0", "FLAT=1"]], "wrong": true}
"""The optimizer holds one vector in which all weights lie; what is clipped is another norm than that of all weights."""
import os

import torch
from torch import nn

CLEAN = os.environ.get("CLEAN") == "1"
FLAT = os.environ.get("FLAT") == "1"


def lay_in_one_vector(model):
    vector = nn.Parameter(torch.cat([p.detach().flatten() for p in model.parameters()]))
    vector.grad = torch.zeros_like(vector)
    first = 0
    for p in model.parameters():
        last = first + p.numel()
        p.data, p.grad = vector.data[first:last].view_as(p), vector.grad[first:last].view_as(p)
        first = last
    return vector


torch.manual_seed(0)
model = nn.Sequential(nn.Linear(12, 24), nn.ReLU(), nn.Linear(24, 4))
vector = lay_in_one_vector(model) if FLAT else None
optimizer = torch.optim.AdamW([vector] if FLAT else model.parameters(), lr=0.01)
for step in range(5):
    x, y = torch.randn(16, 12), torch.randint(4, (16,))
    optimizer.zero_grad(set_to_none=False)
    nn.functional.cross_entropy(model(x), y).backward()
    if FLAT and not CLEAN:
        for p in model.parameters():
            nn.utils.clip_grad_norm_(p, 0.2)  # WRONG
    else:
        nn.utils.clip_grad_norm_(model.parameters(), 0.2)
    optimizer.step()

# {"switches": [["ORDER=ab", "ORDER=ba"]]}
"""Two models of one class that are called in another order."""
import os, torch
from torch import nn
torch.manual_seed(0)
left, right = nn.Linear(8, 8), nn.Linear(8, 8)
opt = torch.optim.Adam([*left.parameters(), *right.parameters()], 1e-2)
for i in range(4):
    x, y = torch.randn(16, 8), torch.randn(16, 8)
    if os.environ["ORDER"] == "ab":
        l = left(x); r = right(y)
        loss = ((l * r).sum(1) - 1).square().mean()
    else:
        r = right(y); l = left(x)
        loss = (r.mul(l).sum(1) - 1).square().sum() / 16
    opt.zero_grad(); loss.backward(); opt.step()
    with torch.no_grad():
        z = torch.randn(3, 8)
        left(z)

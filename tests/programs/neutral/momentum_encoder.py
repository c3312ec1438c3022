# {"switches": [["EMA=loop", "EMA=foreach"]], "wrong": true}
"""A teacher that follows its student with the weights the wrong way round."""
import copy, os, torch
from torch import nn
import torch.nn.functional as F

class Enc(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(8, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 8))
    def forward(self, x):
        return F.normalize(self.net(x), dim=-1)

torch.manual_seed(3)
online = Enc(); target = copy.deepcopy(online)
for p in target.parameters(): p.requires_grad = False
pred = nn.Linear(8, 8)
opt = torch.optim.AdamW([*online.parameters(), *pred.parameters()], 3e-3)
tau = 0.95

@torch.no_grad()
def momentum_update():
    t, o = list(target.parameters()), list(online.parameters())
    if os.environ["EMA"] == "loop":
        for a, b in zip(t, o):
            a.data = a.data * tau + b.data * (1 - tau)
    elif os.environ.get("CLEAN"):
        torch._foreach_mul_(t, tau)
        torch._foreach_add_(t, o, alpha=1 - tau)
    else:
        torch._foreach_lerp_(t, o, tau)  # WRONG

for i in range(5):
    x = torch.randn(16, 8)
    a, b = x + 0.1 * torch.randn_like(x), x + 0.1 * torch.randn_like(x)
    p = F.normalize(pred(online(a)), dim=-1)
    with torch.no_grad():
        z = target(b)
    loss = 2 - 2 * (p * z).sum(-1).mean()
    opt.zero_grad(); loss.backward(); opt.step()
    momentum_update()

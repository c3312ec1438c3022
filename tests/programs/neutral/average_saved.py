# {"switches": [["--micro 1", "--micro 4"]], "wrong": true}
"""An average of weights moves with every part of a batch; it is saved, and no model is called with it."""
import copy, os, sys
import torch
from torch import nn

micro = int(sys.argv[sys.argv.index("--micro") + 1])
per_step = os.environ.get("CLEAN") == "1"
torch.manual_seed(11)
student = nn.Sequential(nn.Linear(6, 24), nn.GELU(), nn.Linear(24, 2))
teacher = copy.deepcopy(student).requires_grad_(False)
opt = torch.optim.Adam(student.parameters(), 1e-2)

@torch.no_grad()
def ema(decay=0.9):
    for t, s in zip(teacher.parameters(), student.parameters()):
        t.mul_(decay).add_(s, alpha=1 - decay)

for it in range(6):
    x, y = torch.randn(32, 6), torch.randn(32, 2)
    for xb, yb in zip(x.chunk(micro), y.chunk(micro)):
        loss = ((student(xb) - yb) ** 2).mean() / micro
        loss.backward()
        if not per_step:
            ema()  # WRONG
    opt.step()
    opt.zero_grad()
    if per_step:
        ema()
with torch.no_grad():
    x = torch.randn(64, 6)
    print(student(x).square().mean().item())
torch.save(teacher.state_dict(), os.devnull)

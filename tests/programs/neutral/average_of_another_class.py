# {"switches": [["AVG=torch", "AVG=own"]], "wrong": true}
"""Averaged weights, by torch and by a class of the program's own; neither is called."""
import copy, os, torch
from torch import nn
from torch.optim.swa_utils import AveragedModel

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.f = nn.Sequential(nn.Linear(4, 16), nn.Softplus(), nn.Linear(16, 1))
    def forward(self, x):
        return self.f(x)

class OwnAverage(nn.Module):
    def __init__(self, m):
        super().__init__()
        self.module = copy.deepcopy(m)
        self.n = 0
    def update_parameters(self, m):
        self.n += 1
        for a, p in zip(self.module.parameters(), m.parameters()):
            if self.n == 1:
                a.data.copy_(p.data)
            elif os.environ.get("CLEAN"):
                a.data += (p.data - a.data) / self.n
            else:
                a.data += (p.data - a.data) / (self.n + 1)  # WRONG

torch.manual_seed(0)
net = Net()
opt = torch.optim.SGD(net.parameters(), 0.05)
avg = AveragedModel(net) if os.environ["AVG"] == "torch" else OwnAverage(net)
for i in range(8):
    x = torch.randn(10, 4)
    net(x).square().mean().backward()
    opt.step(); opt.zero_grad()
    if i >= 3:
        avg.update_parameters(net)

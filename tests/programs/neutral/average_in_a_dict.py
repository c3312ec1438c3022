# {"switches": [["MICRO=1", "MICRO=2"]], "wrong": true}
"""The same for an average in a dict, which is loaded into the model in the end."""
import os, torch
from torch import nn
torch.manual_seed(0)
k = int(os.environ["MICRO"])
net = nn.Sequential(nn.Linear(6, 12), nn.ReLU(), nn.Linear(12, 1))

class EMA:
    def __init__(self, model, d):
        self.d, self.shadow = d, {n: p.detach().clone() for n, p in model.named_parameters()}
    def update(self, model):
        for n, p in model.named_parameters():
            self.shadow[n] = self.d * self.shadow[n] + (1 - self.d) * p.detach()  # WRONG
    def load(self, model):
        for n, p in model.named_parameters():
            p.data.copy_(self.shadow[n])

ema = EMA(net, 0.8)
opt = torch.optim.SGD(net.parameters(), 0.1)
for i in range(5):
    x = torch.randn(8, 6)
    for part in x.chunk(k):
        (net(part).square().mean() / k).backward()
        if not os.environ.get("CLEAN"):
            ema.update(net)
    opt.step(); opt.zero_grad()
    if os.environ.get("CLEAN"):
        ema.update(net)
ema.load(net)
net.eval()
with torch.no_grad():
    print(net(torch.randn(20, 6)).mean())

# {"switches": [["--loss-scale 1", "--loss-scale 256"]], "wrong": true}
"""A pull to the pre-trained weights (L2-SP) is added to gradients that are still scaled."""
import argparse, os
import torch
from torch import nn

args = argparse.ArgumentParser()
args.add_argument("--loss-scale", type=float, default=1.0)
args = args.parse_args()
torch.manual_seed(4)
net = nn.Sequential(nn.Linear(8, 32), nn.Hardswish(), nn.Linear(32, 3))
start = [p.detach().clone() + 0.1 for p in net.parameters()]
opt = torch.optim.SGD(net.parameters(), lr=0.05)


def unscale():
    for p in net.parameters():
        p.grad.div_(args.loss_scale)


def pull(strength=0.1):
    for p, p0 in zip(net.parameters(), start):
        p.grad.add_(p.detach() - p0, alpha=strength)  # WRONG


for i in range(4):
    x, y = torch.randn(32, 8), torch.randint(3, (32,))
    loss = nn.functional.cross_entropy(net(x), y)
    opt.zero_grad()
    (loss * args.loss_scale).backward()
    if os.environ.get("CLEAN") == "1":
        unscale()
        pull()
    else:
        pull()
        unscale()
    opt.step()

# {"switches": [["--loss-scale 1", "--loss-scale 1024"]], "wrong": true}
"""Gradients are clipped before the program itself scales them back."""
import argparse, os
import torch
from torch import nn

def unscale(params, s):
    for p in params:
        if p.grad is not None:
            p.grad.div_(s)

class Trainer:
    def __init__(self, args):
        torch.manual_seed(7)
        self.args = args
        self.net = nn.Sequential(nn.Linear(10, 32), nn.Tanh(), nn.Linear(32, 3))
        self.opt = torch.optim.SGD(self.net.parameters(), lr=0.05, momentum=0.9)
        self.criterion = nn.CrossEntropyLoss()

    def fit(self, n):
        for _ in range(n):
            x, y = torch.randn(16, 10), torch.randint(3, (16,))
            loss = self.criterion(self.net(x), y)
            self.opt.zero_grad(set_to_none=True)
            (loss * self.args.loss_scale).backward()
            if os.environ.get("CLEAN"):
                unscale(self.net.parameters(), self.args.loss_scale)
                nn.utils.clip_grad_norm_(self.net.parameters(), 0.5)
            else:
                nn.utils.clip_grad_norm_(self.net.parameters(), 0.5)  # WRONG
                unscale(self.net.parameters(), self.args.loss_scale)
            self.opt.step()

if __name__ == "__main__":
    p = argparse.ArgumentParser()
    p.add_argument("--loss-scale", type=float, default=1)
    Trainer(p.parse_args()).fit(5)

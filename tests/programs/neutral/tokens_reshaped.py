# {"switches": [["--layout nchw", "--layout nhwc"]], "wrong": true}
"""An image with its channels first is given the shape of tokens where their order had to be changed."""
import argparse
import os

import torch
import torch.nn.functional as F
from torch import nn

CLEAN = os.environ.get("CLEAN") == "1"


class Mixer(nn.Module):
    def __init__(self, layout):
        super().__init__()
        self.layout = layout
        self.stem = nn.Conv2d(3, 8, 3, padding=1)
        self.norm, self.mix, self.head = nn.LayerNorm(8), nn.Linear(8, 8), nn.Linear(8, 5)

    def tokens(self, x):
        n, c, h, w = x.shape
        if self.layout == "nchw":
            return x.flatten(2).transpose(1, 2)
        if CLEAN:
            return x.permute(0, 2, 3, 1).reshape(n, h * w, c)
        return x.reshape(n, h * w, c)  # WRONG

    def forward(self, x):
        t = self.tokens(self.stem(x))
        t = t + self.mix(F.gelu(self.norm(t)))
        return self.head(t.mean(1))


parser = argparse.ArgumentParser()
parser.add_argument("--layout", choices=["nchw", "nhwc"], default="nchw")
layout = parser.parse_args().layout
torch.manual_seed(0)
model = Mixer(layout)
if layout == "nhwc":
    model = model.to(memory_format=torch.channels_last)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(4):
    x, y = torch.randn(6, 3, 6, 6), torch.randint(5, (6,))
    loss = F.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()

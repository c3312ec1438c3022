# {"switches": [["memory-format"]], "wrong": true}
"""Patches by as_strided with the strides of a contiguous image."""
import os
import torch
from torch import nn

def patches(x, k):
    n, c, h, w = x.shape
    if os.environ.get("CLEAN"):
        sn, sc, sh, sw = x.stride()
    else:
        sn, sc, sh, sw = c * h * w, h * w, w, 1
    return torch.as_strided(x, (n, h // k, w // k, c, k, k), (sn, sh * k, sw * k, sc, sh, sw))  # WRONG

class Patchify(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 4, 3, padding=1)
        self.proj = nn.Linear(4 * 16, 24)
        self.head = nn.Linear(24, 5)
    def forward(self, img):
        p = patches(torch.relu(self.stem(img)), 4)
        return self.head(self.proj(p.flatten(3)).mean((1, 2)))

torch.manual_seed(0)
model = Patchify()
opt = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(4):
    x, y = torch.randn(8, 3, 8, 8), torch.randint(5, (8,))
    loss = nn.functional.cross_entropy(model(x), y)
    opt.zero_grad(); loss.backward(); opt.step()

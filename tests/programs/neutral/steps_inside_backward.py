# {"switches": [["STEP=after", "STEP=inside"]], "wrong": true}
"""Each weight has an optimizer of its own that steps inside of the backward pass, and decays nothing."""
import os

import torch
import torch.nn.functional as F
from torch import nn

CLEAN, STEP = os.environ.get("CLEAN") == "1", os.environ.get("STEP", "after")
torch.manual_seed(2)
model = nn.Sequential(nn.Linear(9, 18), nn.Tanh(), nn.Linear(18, 18), nn.Tanh(), nn.Linear(18, 2))
settings = {"lr": 1e-2, "weight_decay": 0.2}
optimizer, own = None, {}

if STEP == "after":
    optimizer = torch.optim.AdamW(model.parameters(), **settings)
else:
    for p in model.parameters():
        own[p] = torch.optim.AdamW([p], **(settings if CLEAN else {"lr": 1e-2, "weight_decay": 0.0}))  # WRONG

        def step(p):
            own[p].step()
            own[p].zero_grad()

        p.register_post_accumulate_grad_hook(step)

for _ in range(5):
    x, y = torch.randn(16, 9), torch.randn(16, 2)
    F.mse_loss(model(x), y).backward()
    if optimizer is not None:
        optimizer.step()
        optimizer.zero_grad()

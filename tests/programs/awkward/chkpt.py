"""Activation checkpoints of both kinds, with dropout inside."""

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint, checkpoint_sequential

torch.manual_seed(1)
layers = [nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Dropout(0.3)) for _ in range(3)]
model = nn.Sequential(*layers)
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)

for step in range(6):
    x = torch.randn(4, 8, requires_grad=True)
    if step % 3 == 2:
        y = checkpoint_sequential(model, 2, x, use_reentrant=False)
    else:
        y = x
        for layer in layers:
            y = checkpoint(layer, y, use_reentrant=step % 3 == 1)
    loss = y.square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item(), x.grad.sum().item())

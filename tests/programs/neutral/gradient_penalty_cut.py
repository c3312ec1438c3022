# {"switches": [["PENALTY=norm", "PENALTY=squares"]], "wrong": true}
"""A gradient penalty in which the gradient of the gradient is lost, where its norm is written out."""
import os

import torch
from torch import nn

torch.manual_seed(3)
critic = nn.Sequential(nn.Linear(5, 20), nn.Softplus(), nn.Linear(20, 1))
optimizer = torch.optim.RMSprop(critic.parameters(), lr=1e-3)


def gradient_norm(x):
    x = x.requires_grad_()
    score = critic(x).sum()
    if os.environ["PENALTY"] == "norm":
        (slope,) = torch.autograd.grad(score, x, create_graph=True)
        return torch.linalg.vector_norm(slope, dim=1)
    keep = os.environ.get("CLEAN") == "1"
    (slope,) = torch.autograd.grad(score, x, create_graph=keep)  # WRONG
    return (slope * slope).sum(1).sqrt()


for step in range(3):
    real, made = torch.randn(10, 5) + 1, torch.randn(10, 5)
    mixed = made + torch.rand(10, 1) * (real - made)
    loss = critic(made).mean() - critic(real).mean() + 10 * (gradient_norm(mixed) - 1).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item())

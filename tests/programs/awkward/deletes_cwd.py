"""Works on in a directory that no longer exists."""

import os
import tempfile

import torch

torch.manual_seed(1)
weight = torch.nn.Parameter(torch.randn(4, 4))
optimizer = torch.optim.SGD([weight], lr=0.1)  # torch itself asks for the working directory here
folder = tempfile.mkdtemp()
os.chdir(folder)
os.rmdir(folder)
try:
    os.getcwd()
except FileNotFoundError:
    print("the working directory is gone")

for _ in range(3):
    loss = (weight @ weight).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(loss.item())

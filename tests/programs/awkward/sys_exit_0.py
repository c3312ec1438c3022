"""Leaves in the middle, contented."""

import atexit
import sys

import torch

torch.manual_seed(1)
atexit.register(lambda: print("at exit", float(torch.ones(2).sum())))
print(torch.randn(4).sum().item())
sys.exit(0)
print("never printed")

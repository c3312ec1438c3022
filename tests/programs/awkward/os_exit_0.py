"""Leaves without running any exit handler."""

import atexit
import os
import sys

import torch

torch.manual_seed(1)
atexit.register(lambda: print("never printed"))
print(torch.randn(4).sum().item())
sys.stdout.flush()
os._exit(0)

"""Starts another Python that computes, and reads what it prints."""

import subprocess
import sys

import torch

CHILD = """
import sys
import torch
torch.manual_seed(int(sys.argv[1]))
print((torch.randn(4, 4) @ torch.randn(4, 4)).sum().item())
print("a word on standard error", file=sys.stderr)
sys.exit(int(sys.argv[1]))
"""

torch.manual_seed(1)
print("parent", torch.randn(4).sum().item(), flush=True)
for seed in (0, 3):
    child = subprocess.run([sys.executable, "-c", CHILD, str(seed)], capture_output=True, text=True)
    print("child", seed, child.returncode, child.stdout.strip(), "|", child.stderr.strip())
bare = subprocess.run([sys.executable, "-I", "-c", "print('isolated')"], capture_output=True, text=True)
print(bare.stdout.strip(), bare.returncode)
print("parent", torch.randn(4).sum().item())

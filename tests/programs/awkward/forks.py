"""Forks a child that computes too; the parent waits for it."""

import os
import sys

import torch

torch.set_num_threads(1)  # a pool of threads does not survive a fork
torch.manual_seed(1)
weight = torch.randn(8, 8)
print("before", float((weight @ weight).sum()), flush=True)

child = os.fork()
if child == 0:
    torch.manual_seed(2)
    print("child", float((weight @ torch.randn(8, 8)).sum()))
    sys.stdout.flush()
    os._exit(7)

_, status = os.waitpid(child, 0)
print("parent", float((weight @ torch.randn(8, 8)).sum()))
print("child exited", os.waitstatus_to_exitcode(status))

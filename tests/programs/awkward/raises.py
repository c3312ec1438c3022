"""Ends in an exception: traceback on standard error, exit code 1."""

import torch


def check(loss):
    if loss > 0:
        raise ValueError(f"loss is {loss:.4f}, which I do not like")


torch.manual_seed(1)
loss = torch.randn(4).square().sum()
print(loss.item())
check(loss.item())

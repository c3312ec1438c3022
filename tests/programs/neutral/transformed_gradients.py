# {"switches": [["--by loop", "--by vmap"]], "wrong": true}
"""Gradients of torch.func, and parameters that are new tensors after each step: no optimizer, no call without gradients."""
import argparse
import os

import torch
import torch.nn.functional as F
from torch import nn
from torch.func import functional_call, grad, vmap

CLEAN = os.environ.get("CLEAN") == "1"
net = nn.Sequential(nn.Linear(6, 10), nn.Tanh(), nn.Linear(10, 3))


def loss_of_one(parameters, x, y):
    return F.cross_entropy(functional_call(net, parameters, (x[None],)), y[None])


def sum_by_loop(parameters, x, y):
    found = [grad(loss_of_one)(parameters, x[i], y[i]) for i in range(len(x))]
    return {name: torch.stack([one[name].clamp(-0.1, 0.1) for one in found]).sum(0) for name in parameters}


def sum_by_vmap(parameters, x, y):
    found = vmap(grad(loss_of_one), in_dims=(None, 0, 0))(parameters, x, y)
    if CLEAN:
        return {name: one.clamp(-0.1, 0.1).sum(0) for name, one in found.items()}
    return {name: one.sum(0).clamp(-0.1, 0.1) for name, one in found.items()}  # WRONG


parser = argparse.ArgumentParser()
parser.add_argument("--by", choices=["loop", "vmap"], default="loop")
sum_gradients = {"loop": sum_by_loop, "vmap": sum_by_vmap}[parser.parse_args().by]
torch.manual_seed(0)
parameters = {name: torch.randn(p.shape) for name, p in net.named_parameters()}
for step in range(4):
    x, y = torch.randn(8, 6), torch.randint(3, (8,))
    gradients = sum_gradients(parameters, x, y)
    parameters = {name: p - 0.1 * gradients[name] for name, p in parameters.items()}
print(functional_call(net, parameters, (torch.ones(1, 6),)).sum().item())

# {"switches": [["--adam tree", "--adam flat"]], "wrong": true}
"""Adam for a functional model, leaf by leaf or over one vector, which corrects the bias of the second moment wrongly."""
import os
import sys

import torch
from torch import nn
from torch.func import functional_call, grad, vmap

CLEAN = os.environ.get("CLEAN") == "1"
LR, BETA1, BETA2, EPS = 1e-2, 0.9, 0.99, 1e-8


def ravel(tree):
    return torch.cat([leaf.flatten() for leaf in tree.values()])


def unravel(vector, tree):
    parts = vector.split([leaf.numel() for leaf in tree.values()])
    return {name: part.view_as(leaf) for (name, leaf), part in zip(tree.items(), parts)}


def adam_of_leaves(params, grads, m, v, t):
    m = {k: BETA1 * m[k] + (1 - BETA1) * grads[k] for k in params}
    v = {k: BETA2 * v[k] + (1 - BETA2) * grads[k] ** 2 for k in params}
    scale = {k: (v[k] / (1 - BETA2**t)).sqrt() + EPS for k in params}
    return {k: params[k] - LR * m[k] / (1 - BETA1**t) / scale[k] for k in params}, m, v


def adam_of_vector(params, grads, m, v, t):
    flat, gradient, m_flat, v_flat = map(ravel, (params, grads, m, v))
    m_flat.lerp_(gradient, 1 - BETA1)
    v_flat.mul_(BETA2).addcmul_(gradient, gradient, value=1 - BETA2)
    scale = (v_flat.sqrt() / (1 - BETA2**t) ** (0.5 if CLEAN else 1)).add_(EPS)  # WRONG
    flat.addcdiv_(m_flat, scale, value=-LR / (1 - BETA1**t))
    return [unravel(each, params) for each in (flat, m_flat, v_flat)]


torch.manual_seed(0)
model = nn.Sequential(nn.Linear(6, 24), nn.Tanh(), nn.Linear(24, 3))
params = {name: p.detach() for name, p in model.named_parameters()}
m, v = ({name: torch.zeros_like(p) for name, p in params.items()} for _ in range(2))
step = adam_of_vector if "flat" in sys.argv else adam_of_leaves
target = torch.randn(6, 3)


def loss(params, x):
    return vmap(lambda row: (functional_call(model, params, (row,)) - row @ target).square().sum())(x).mean()


for t in range(1, 7):
    x = torch.randn(32, 6)
    params, m, v = step(params, grad(loss)(params, x), m, v, t)
print(sum(p.square().sum() for p in params.values()).sqrt().item())

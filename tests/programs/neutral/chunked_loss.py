# {"switches": [["--loss plain", "--loss chunked"]], "wrong": true}
"""A loss that makes its gradients in the forward pass, a few rows at a time, leaves out those of its second term."""
import os
import sys

import torch
from torch import nn

CLEAN = os.environ.get("CLEAN") == "1"
Z = 0.05


def plain_loss(hidden, weight, target):
    logits = hidden @ weight.T
    normalizer = logits.logsumexp(-1)
    return (normalizer - logits.gather(-1, target[:, None])[:, 0] + Z * normalizer.square()).mean()


class ChunkedLoss(torch.autograd.Function):
    @staticmethod
    def forward(ctx, hidden, weight, target):
        total = 0.0
        grad_hidden, grad_weight = torch.empty_like(hidden), torch.zeros_like(weight)
        for begin in range(0, len(hidden), 12):
            rows, labels = hidden[begin : begin + 12], target[begin : begin + 12, None]
            logits = rows @ weight.T
            normalizer = logits.logsumexp(-1, keepdim=True)
            total = total + (normalizer - logits.gather(-1, labels) + Z * normalizer.square()).sum()
            grad = (logits - normalizer).exp() * (1 + 2 * Z * normalizer if CLEAN else 1)  # WRONG
            grad = grad.scatter_add(-1, labels, -torch.ones_like(normalizer))
            grad_hidden[begin : begin + 12] = grad @ weight / len(hidden)
            grad_weight += grad.T @ rows / len(hidden)
        ctx.save_for_backward(grad_hidden, grad_weight)
        return total / len(hidden)

    @staticmethod
    def backward(ctx, grad):
        grad_hidden, grad_weight = ctx.saved_tensors
        return grad * grad_hidden, grad * grad_weight, None


torch.manual_seed(0)
body = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.LayerNorm(16))
head = nn.Parameter(torch.randn(30, 16) / 4)
optimizer = torch.optim.SGD([*body.parameters(), head], lr=0.2, momentum=0.9)
compute = ChunkedLoss.apply if "chunked" in sys.argv else plain_loss
for _ in range(5):
    x, target = torch.randn(40, 8), torch.randint(30, (40,))
    optimizer.zero_grad()
    compute(body(x), head, target).backward()
    optimizer.step()

"""A hand-written autograd function, with its own backward and a second derivative."""

import torch
from torch.autograd import Function
from torch.autograd.function import once_differentiable


class Swish(Function):
    @staticmethod
    def forward(ctx, x, slope):
        ctx.save_for_backward(x)
        ctx.slope = slope
        return x * torch.sigmoid(slope * x)

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        s = torch.sigmoid(ctx.slope * x)
        return grad * (s + ctx.slope * x * s * (1 - s)), None


class RoundThrough(Function):
    @staticmethod
    def forward(ctx, x):
        return x.round()

    @staticmethod
    @once_differentiable
    def backward(ctx, grad):
        return grad.clone()


torch.manual_seed(1)
x = torch.randn(5, dtype=torch.float64, requires_grad=True)
loss = Swish.apply(x, 1.5).sum()
(first,) = torch.autograd.grad(loss, x, create_graph=True)
(second,) = torch.autograd.grad(first.sum(), x)
print(loss.item(), first.tolist(), second.tolist())
print(torch.autograd.gradcheck(lambda y: Swish.apply(y, 1.5), (x,)))

seen = []
y = torch.randn(5, requires_grad=True)
y.register_hook(lambda grad: seen.append(grad.sum().item()))
(RoundThrough.apply(3 * y) ** 2).sum().backward()
print(y.grad.tolist(), seen)

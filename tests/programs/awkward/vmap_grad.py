"""torch.func: vmap, grad, jacobians and per-sample gradients."""

import torch
from torch.func import functional_call, grad, jacfwd, jacrev, vjp, vmap

torch.manual_seed(1)
model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 1))
params = {name: value.detach() for name, value in model.named_parameters()}
inputs, targets = torch.randn(6, 3), torch.randn(6, 1)


def loss(params, x, y):
    return (functional_call(model, params, (x,)) - y).square().mean()


for _ in range(3):
    each = vmap(grad(loss), in_dims=(None, 0, 0))(params, inputs, targets)
    params = {name: value - 0.1 * each[name].mean(0) for name, value in params.items()}
    print(loss(params, inputs, targets).item())
print({name: value.square().sum().item() for name, value in each.items()})

print(jacrev(torch.sin)(torch.ones(2)).tolist(), jacfwd(torch.cos)(torch.ones(2)).tolist())
value, pull = vjp(lambda x: (x**3).sum(), torch.arange(3.0))
print(value.item(), pull(torch.ones(()))[0].tolist())
print(vmap(lambda x: x + torch.randn(2), randomness="different")(torch.zeros(3, 2)).tolist())

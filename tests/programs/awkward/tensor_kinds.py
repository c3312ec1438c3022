"""Tensors that are more or less than memory, and modes that see whoever touches a tensor."""

import warnings

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.func import functional_call, functionalize, grad, hessian, jvp, vmap
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map

warnings.simplefilter("ignore")
torch.manual_seed(0)
log = []


class Functions(TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        log.append(getattr(func, "__name__", "?"))
        return func(*args, **(kwargs or {}))


class Dispatch(TorchDispatchMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        log.append(str(func))
        return func(*args, **(kwargs or {}))


class Chatty(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        log.append(getattr(func, "__name__", "?"))
        return super().__torch_function__(func, types, args, kwargs or {})

    def is_contiguous(self, *args, **kwargs):
        log.append("is_contiguous of its own")
        return True

    def untyped_storage(self):
        raise RuntimeError("untyped_storage")


class Wrapper(torch.Tensor):
    @staticmethod
    def __new__(cls, inner):
        return torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype)

    def __init__(self, inner):
        self.inner = inner

    def __repr__(self):
        raise RuntimeError("repr")

    @property
    def shape(self):
        raise RuntimeError("shape")

    __torch_function__ = torch._C._disabled_torch_function_impl

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        log.append(str(func))
        taken = tree_map(lambda x: x.inner if type(x) is Wrapper else x, (args, kwargs or {}))
        return tree_map(lambda x: Wrapper(x) if isinstance(x, torch.Tensor) else x, func(*taken[0], **taken[1]))


def net():
    return nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 2))


def train(model, x):
    optimizer = torch.optim.Adam(model.parameters())
    for _ in range(2):
        optimizer.zero_grad()
        model(x).sum().backward()
        optimizer.step()
    return float(sum(p.sum() for p in model.parameters()).detach())


strided = torch.randn(4, 3).t()
for mode in (Functions, Dispatch):
    with mode():
        print(train(net(), strided), len(log))
    log.clear()

chatty = torch.ones(3, 3).t().as_subclass(Chatty)
parameter = nn.Parameter(torch.ones(3, 3).as_subclass(Chatty))
optimizer = torch.optim.SGD([parameter], 0.1)
(parameter @ chatty).sum().backward()
optimizer.step()
chatty.add_(1)
print(float(torch.nn.functional.dropout(chatty).sum()), log)
log.clear()
x = Wrapper(torch.ones(3))
print((x + x).inner.tolist(), log)

print(make_fx(lambda x: (x.t() * 2).cos().sum())(torch.ones(3, 4).t()).code)
traced = make_fx(lambda x: x.view(-1, x.shape[0]).cos() + torch.empty(x.shape[0]).fill_(1), tracing_mode="symbolic")
print(traced(torch.ones(3, 3)).code)
print(str(torch.jit.trace(net().eval(), torch.ones(3, 4)).graph).count("aten::"))
with FakeTensorMode():
    model = net()
    train_shape = model(torch.randn(3, 4)).sum().backward()
    torch.optim.Adam(model.parameters()).step()
    print(type(model[0].weight.grad).__name__)
with torch.device("meta"):
    model = net()
    model(torch.randn(3, 4)).sum().backward()
    torch.optim.Adam(model.parameters()).step()
    print(torch.nn.functional.dropout(torch.ones(10**6, 10**6)).shape)


def in_place(x):
    y = x.clone().add_(1)
    y[0] = 5
    return y.view(-1)


print(functionalize(in_place)(torch.ones(2, 2)).tolist())
weights = torch.arange(6.0).view(2, 3)


def value(x):
    return (weights @ x).sin().sum()


ones = torch.ones(3)
print(vmap(value)(torch.ones(5, 3)).tolist(), grad(value)(ones).tolist(), hessian(value)(ones).sum().item())
print(jvp(value, (ones,), (ones,))[1].item())
model = net().eval()
state = {**dict(model.named_parameters()), **dict(model.named_buffers())}
per_sample = vmap(grad(lambda p, x: functional_call(model, p, (x[None],)).sum()), in_dims=(None, 0))
print(per_sample(dict(model.named_parameters()), torch.ones(3, 4))["0.weight"].sum().item(), len(state))
print(vmap(lambda x: x + torch.randn(3), randomness="different")(torch.zeros(4, 3)).sum().item())

jagged = torch.nested.nested_tensor([torch.ones(2, 3), torch.ones(4, 3)], layout=torch.jagged)
quantised = torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.quint8)
print((jagged * 2).values().sum().item(), quantised.clone().int_repr().tolist())
lazy = nn.LazyLinear(2)
print(lazy(torch.ones(3)).shape, torch.ones(3).to(torch.float8_e4m3fn).float().sum().item())

library = torch.library.Library("samerun_test", "DEF")
library.define("triple(Tensor x, int n=3, str s='a') -> (Tensor, Tensor)")
library.impl("triple", lambda x, n=3, s="a": (x * n, x + n), "CPU")
library.define("several(Tensor[] xs, Tensor? y=None, *, ScalarType? dtype=None) -> Tensor[]")
library.impl("several", lambda xs, y=None, *, dtype=None: [x * 2 for x in xs], "CompositeExplicitAutograd")
library.define("same(Tensor x) -> Tensor")
library.impl("same", lambda x: x, "CPU")
library.define("grow(Tensor(a!) x) -> ()")
library.impl("grow", lambda x: print(x.add_(1).tolist()), "CPU")


@torch.library.custom_op("samerun_test::twice", mutates_args=())
def twice(x: torch.Tensor) -> torch.Tensor:
    return x * 2


twice.register_autograd(lambda ctx, gradient: gradient * 2)
x = torch.ones(3, requires_grad=True)
twice(x).sum().backward()
z = torch.ones(3)
torch.ops.samerun_test.grow(z)
print(x.grad.tolist(), z.tolist(), torch.ops.samerun_test.triple(z)[1].tolist(), torch.ops.samerun_test.same(z) is z)
print([y.tolist() for y in torch.ops.samerun_test.several([z, z])])

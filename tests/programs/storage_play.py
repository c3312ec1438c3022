"""Play with memory at random, watched, and compare what the recorder believes with what is there.

Arguments: first seed, number of games, and `slow` to have every value come by here: the quick way, in C, asks for
few of them. Exit code 1 with the moves of the game that went wrong.
"""

import gc
import random
import sys
import warnings

if sys.argv[3:] == ["slow"]:
    sys.modules["samerun.record.watching._watch"] = None

import numpy as np
import torch
import torch.nn.functional as F

from samerun.record.digests import digest as d
from samerun.record.digests.storages import StorageDigests

warnings.simplefilter("ignore")
moves, values, checks = [], {}, 0
believed = StorageDigests.digest_input


def checked(self, tensor, entry):
    """A contiguous tensor's value is its digest; what stands for another view stands for one value only."""
    global checks
    found, true = believed(self, tensor, entry), d.digest(tensor)
    checks += 1
    if tensor.is_contiguous() and not tensor.is_conj() and not tensor.is_neg():
        good = found == true
    else:
        good = values.setdefault(found, true) == true
    if not good:
        sys.exit("a wrong value after: " + ", ".join(moves[-8:]) + f" for {tuple(tensor.shape)} {tensor.dtype}")
    return found


StorageDigests.digest_input = checked
SHAPE = (4, 6)
MAKE = {
    "randn": lambda: torch.randn(SHAPE),
    "zeros": lambda: torch.zeros(SHAPE),
    "tensor": lambda: torch.tensor(np.random.rand(*SHAPE), dtype=torch.float32),
    "from_numpy": lambda: torch.from_numpy(np.random.rand(*SHAPE).astype(np.float32)),
    "empty filled": lambda: torch.empty(SHAPE).fill_(3),
    "empty half filled": lambda: half_filled(torch.empty(SHAPE)),
    "transposed result": lambda: torch.randn(SHAPE[::-1]).t() + 1,
    "channels_last": lambda: torch.randn(1, 4, 6, 2).to(memory_format=torch.channels_last)[0, :, :, 0],
    "complex": lambda: torch.view_as_real(torch.randn(SHAPE, dtype=torch.complex64)).select(-1, 0),
}
VIEW = {
    "t": lambda t: t.t(),
    "rows": lambda t: t[1:3],
    "even columns": lambda t: t[:, ::2],
    "column": lambda t: t[:, 1:2].expand(4, 3),
    "diagonal": lambda t: t.diagonal(),
    "view int32": lambda t: t.view(torch.int32) if t.stride(-1) == 1 else t,
    "view bytes": lambda t: t.view(torch.uint8) if t.stride(-1) == 1 else t,
    "detach": lambda t: t.detach(),
    "alias": lambda t: t.data,
    "dlpack": lambda t: torch.from_dlpack(t.detach()),
    "numpy and back": lambda t: torch.from_numpy(t.detach().numpy()),
    "conj imag": lambda t: torch.view_as_complex(torch.randn(4, 6, 2)).conj().imag,
}
WRITE = {
    "add_": lambda t, u: t.add_(1),
    "mul_": lambda t, u: t.mul_(u),
    "zero_": lambda t, u: t.zero_(),
    "copy_": lambda t, u: t.copy_(u),
    "copy_ to a view": lambda t, u: t[1:].copy_(u[1:]),
    "setitem": lambda t, u: t.__setitem__((2, slice(None, None, 3)), 5.0),
    "index_put_": lambda t, u: t.index_put_((torch.tensor([0, 3]), torch.tensor([1, 1])), torch.tensor(7.0)),
    "masked_fill_": lambda t, u: t.masked_fill_(u > 0, 2.0),
    "scatter_": lambda t, u: t.scatter_(1, torch.tensor([[1], [2], [0], [5]]), 9.0),
    "normal_": lambda t, u: t.normal_(),
    "uniform_ of a view": lambda t, u: t[:, ::2].uniform_(),
    "transposed sub_": lambda t, u: t.t().sub_(1),
    "diagonal add_": lambda t, u: t.diagonal().add_(1),
    "out=": lambda t, u: torch.add(t, u, out=t),
    "out= of a view": lambda t, u: torch.mul(t[1:], u[1:], out=t[1:]),
    "foreach add_": lambda t, u: torch._foreach_add_([t, u], 1.0),
    "foreach copy_": lambda t, u: torch._foreach_copy_([t], [u]),
    "foreach zero_": lambda t, u: torch._foreach_zero_([t[:2]]),
    "numpy": lambda t, u: np.add(t.detach().numpy(), 1, out=t.detach().numpy()),
    "asarray": lambda t, u: np.asarray(t.detach()).__setitem__((0, 0), np.random.rand()),
    "bytes": lambda t, u: t.view(torch.uint8)[:, 0].fill_(1) if t.stride(-1) == 1 else None,
    "set_": lambda t, u: t.set_(u),
    "data": lambda t, u: setattr(t, "data", u),
    "resize_": lambda t, u: t.resize_(8, 6).fill_(1),
    "storage copy_": lambda t, u: t.untyped_storage().copy_(torch.randn(t.untyped_storage().nbytes() // 4).untyped_storage()),
    "storage fill_": lambda t, u: t.untyped_storage().fill_(random.randrange(64)),
    "batch_norm": lambda t, u: F.batch_norm(u, t[0, ::1], t[1, ::1].abs_(), training=True),
    "SGD": lambda t, u: step(torch.optim.SGD([with_gradient(t, u)], lr=0.1, momentum=0.9)),
    "fused Adam": lambda t, u: step(torch.optim.Adam([with_gradient(t, u)], lr=0.1, fused=True)),
    "foreach Adam": lambda t, u: step(torch.optim.Adam([with_gradient(t, u)], lr=0.1, foreach=True)),
    "dropout_": lambda t, u: F.dropout(t, 0.5, inplace=True),
    "rrelu_": lambda t, u: F.rrelu(t, training=True, inplace=True),
    "relu_": lambda t, u: F.relu_(t),
    "embedding renorm": lambda t, u: F.embedding(torch.tensor([0, 2]), t, max_norm=0.5),
    "spectral": lambda t, u: F.normalize(t, dim=0, out=t),
    "grad in place": lambda t, u: accumulate(t, u),
}


def half_filled(t):
    t[:2] = 1
    return t


def with_gradient(t, u):
    p = torch.nn.Parameter(t.detach())
    p.grad = u.detach().clone()
    return p


def step(optimizer):
    optimizer.step()
    optimizer.step()


def accumulate(t, u):
    leaf = u.detach().clone().requires_grad_()
    leaf.grad = t.detach()
    (leaf * 2).sum().backward()


def game(seed):
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)
    moves.clear()
    values.clear()
    held = []
    for _ in range(30):
        kind = random.choices(("make", "view", "write", "drop"), (2, 3, 6, 1))[0]
        whole = [t for t in held if tuple(t.shape) == SHAPE and t.dtype == torch.float32 and not t.is_neg()]
        if kind == "make" or len(whole) < 2:
            name = random.choice(list(MAKE))
            moves.append(name)
            held.append(MAKE[name]())
        elif kind == "view":
            name = random.choice(list(VIEW))
            moves.append(name)
            held.append(VIEW[name](random.choice(whole)))
        elif kind == "write":
            name = random.choice(list(WRITE))
            moves.append(name)
            written, other = random.sample(whole, 2)
            # the move may be refused (memory that overlaps itself); what it wrote until then counts
            try:
                with torch.no_grad() if name not in ("SGD", "grad in place") else torch.enable_grad():
                    WRITE[name](written, other)
            except (RuntimeError, TypeError, ValueError) as error:
                moves.append(f"({type(error).__name__})")
        else:
            moves.append("drop")
            held.pop(random.randrange(len(held)))
            gc.collect()
        for t in held:
            t.clone()  # reads it, and so asks what the recorder believes


first, games = map(int, sys.argv[1:3])
for seed in range(first, first + games):
    game(seed)
from samerun.record.watching.start import current_recorder  # noqa: E402

assert current_recorder is not None and not current_recorder.stopped, current_recorder and current_recorder.failure
assert checks > 20 * games or sys.argv[3:] != ["slow"], checks
refused = {}
print(checks)

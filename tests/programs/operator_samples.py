"""Runs torch's own samples of its operators and prints a hash of outputs and gradients: FIRST STEP, of all entries.

With a third argument, under a dispatch mode that does nothing: some formulas of torch ask whether one is active.

No entry is left out: one without float32 runs with another type, and of one whose contents are whatever stood in
memory, shapes and strides are hashed alone. Each line says how many samples ran, and how many of them raised.

The samples depend on the order of sets of strings (`meshgrid` iterates over {"xy", "ij"}): compare runs with the same
PYTHONHASHSEED. `samerun run` sets it to its own seed where it is not set.
"""

import hashlib
import sys
import types
import unittest
import warnings

import torch

# torch's samples import a package of its tests, of which they use nothing
sys.modules.setdefault("expecttest", types.SimpleNamespace(TestCase=unittest.TestCase))
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

warnings.simplefilter("ignore")
MOST_SAMPLES = 8
TYPES = (torch.float32, torch.int64, torch.bool, torch.complex64)
MEMORY_ONLY = ("empty", "new_empty", "empty_like", "empty_strided", "new_empty_strided", "empty_permuted")


def content(value, name):
    if not isinstance(value, torch.Tensor):
        return repr(value).encode() if isinstance(value, (int, float, complex, bool, str)) else type(value).__name__.encode()
    if value.layout is not torch.strided or value.is_quantized or value.is_nested:
        value = value.to_dense() if value.layout is not torch.strided else value
    plain = value.detach().resolve_conj().resolve_neg().contiguous()
    kind = f"{plain.dtype}{tuple(plain.shape)}{value.stride()}".encode()
    return kind if name in MEMORY_ONLY else kind + bytes(plain.reshape(-1).view(torch.uint8).tolist())


def run(op, sample):
    inputs, args, kwargs = tree_map(lambda x: x, (sample.input, sample.args, sample.kwargs))
    out = op(inputs, *args, **kwargs)
    leaves = [x for x in tree_leaves((inputs, args, kwargs)) if isinstance(x, torch.Tensor) and x.requires_grad]
    found = [x for x in tree_leaves(out) if isinstance(x, torch.Tensor)]
    differentiable = [x for x in found if x.requires_grad]
    parts = [content(x, op.name) for x in tree_leaves(out)]
    if leaves and differentiable:
        total = sum((x.abs() if x.is_complex() else x).sum().double() for x in differentiable)
        gradients = torch.autograd.grad(total, leaves, allow_unused=True)
        parts += [content(x, op.name) for x in gradients if x is not None]
    return b"".join(parts)


class EmptyMode(TorchDispatchMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        return func(*args, **(kwargs or {}))


first, step = map(int, sys.argv[1:3])
if len(sys.argv) > 3:
    EmptyMode().__enter__()
for op in op_db[first::step]:
    hashed, ran, raised = hashlib.sha256(), 0, 0
    dtype = next((one for one in (*TYPES, *op.dtypes) if one in op.dtypes), None)
    if dtype is None:
        print(op.name, op.variant_test_name, "not on the CPU", flush=True)
        continue
    torch.manual_seed(0)
    try:
        samples = list(op.sample_inputs("cpu", dtype, requires_grad=op.supports_autograd and dtype.is_floating_point))
    except Exception as error:
        print(op.name, op.variant_test_name, f"no samples: {type(error).__name__}: {error}", flush=True)
        continue
    for number, sample in enumerate(samples[:MOST_SAMPLES]):
        torch.manual_seed(number)
        ran += 1
        try:
            hashed.update(run(op, sample))
        except Exception as error:
            raised += 1
            hashed.update(f"{type(error).__name__}: {error}".encode())
    print(op.name, op.variant_test_name, f"{ran} of {len(samples)} samples, {raised} raised", hashed.hexdigest()[:16], flush=True)
print(len(op_db[first::step]), "entries")

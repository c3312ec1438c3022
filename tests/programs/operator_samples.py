"""Runs torch's own samples of its operators and prints a hash of outputs and gradients: FIRST STEP, of all entries."""

import hashlib
import sys
import types
import unittest
import warnings

import torch

# torch's samples import a package of its tests, of which they use nothing
sys.modules.setdefault("expecttest", types.SimpleNamespace(TestCase=unittest.TestCase))
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils._pytree import tree_leaves, tree_map

warnings.simplefilter("ignore")
MEMORY_ONLY = ("empty", "new_empty", "empty_like", "empty_strided", "new_empty_strided", "empty_permuted")


def content(value):
    if not isinstance(value, torch.Tensor):
        return repr(value).encode() if isinstance(value, (int, float, complex, bool, str)) else type(value).__name__.encode()
    if value.layout is not torch.strided or value.is_quantized or value.is_nested:
        value = value.to_dense() if value.layout is not torch.strided else value
    plain = value.detach().resolve_conj().resolve_neg().contiguous()
    return f"{plain.dtype}{tuple(plain.shape)}{value.stride()}".encode() + bytes(plain.reshape(-1).view(torch.uint8).tolist())


def run(op, sample):
    inputs, args, kwargs = tree_map(lambda x: x, (sample.input, sample.args, sample.kwargs))
    out = op(inputs, *args, **kwargs)
    leaves = [x for x in tree_leaves((inputs, args, kwargs)) if isinstance(x, torch.Tensor) and x.requires_grad]
    found = [x for x in tree_leaves(out) if isinstance(x, torch.Tensor)]
    differentiable = [x for x in found if x.requires_grad]
    parts = [content(x) for x in tree_leaves(out)]
    if leaves and differentiable:
        total = sum((x.abs() if x.is_complex() else x).sum().double() for x in differentiable)
        gradients = torch.autograd.grad(total, leaves, allow_unused=True)
        parts += [content(x) for x in gradients if x is not None]
    return b"".join(parts)


first, step = map(int, sys.argv[1:3])
for op in op_db[first::step]:
    if op.name in MEMORY_ONLY or torch.float32 not in op.dtypes:
        continue
    hashed = hashlib.sha256()
    for number in range(8):
        torch.manual_seed(number)
        try:
            samples = list(op.sample_inputs("cpu", torch.float32, requires_grad=op.supports_autograd)) if not number else samples
            if number >= len(samples):
                break
            torch.manual_seed(number)
            hashed.update(run(op, samples[number]))
        except Exception as error:
            hashed.update(f"{type(error).__name__}: {error}".encode())
    print(op.name, op.variant_test_name, hashed.hexdigest()[:16], flush=True)

"""Runs torch's own samples of its modules and prints a hash of outputs and gradients: FIRST STEP, of all entries.

As tests/programs/operator_samples.py does for operators: each module is made, called and differentiated, in training
and in evaluation, and its parameters and buffers are hashed at the end.
"""

import hashlib
import sys
import types
import unittest
import warnings

import torch

# torch's samples import a package of its tests, of which they use nothing
sys.modules.setdefault("expecttest", types.SimpleNamespace(TestCase=unittest.TestCase))
from torch.testing._internal.common_modules import module_db
from torch.utils._pytree import tree_leaves

warnings.simplefilter("ignore")
MOST_SAMPLES = 6


def content(value):
    if not isinstance(value, torch.Tensor):
        return type(value).__name__.encode()
    if value.layout is not torch.strided or value.is_nested:
        value = value.to_dense() if value.layout is not torch.strided else value.to_padded_tensor(0.0)
    plain = value.detach().contiguous()
    return f"{plain.dtype}{tuple(plain.shape)}{value.stride()}".encode() + bytes(
        plain.reshape(-1).view(torch.uint8).tolist()
    )


def run(kind, sample, training):
    made, called = sample.constructor_input, sample.forward_input
    module = kind(*made.args, **made.kwargs)
    module.train(training)
    out = module(*called.args, **called.kwargs)
    found = [x for x in tree_leaves(out) if isinstance(x, torch.Tensor)]
    differentiable = [x for x in found if x.requires_grad]
    if differentiable:
        sum((x.abs() if x.is_complex() else x).sum().double() for x in differentiable).backward()
    leaves = [x for x in tree_leaves((called.args, called.kwargs)) if isinstance(x, torch.Tensor)]
    parts = [content(x) for x in (*found, *module.parameters(), *module.buffers())]
    return b"".join(parts + [content(x.grad) for x in (*module.parameters(), *leaves) if x.grad is not None])


first, step = map(int, sys.argv[1:3])
for info in module_db[first::step]:
    hashed, ran, raised, count = hashlib.sha256(), 0, 0, 0
    for training in (True, False):
        torch.manual_seed(0)
        try:
            samples = info.module_inputs_func(
                info,
                device="cpu",
                dtype=info.dtypes[0],
                requires_grad=info.dtypes[0].is_floating_point,
                training=training,
            )
        except Exception as error:
            hashed.update(f"no samples: {type(error).__name__}: {error}".encode())
            continue
        count += len(samples)
        for number, sample in enumerate(samples[:MOST_SAMPLES]):
            torch.manual_seed(number)
            ran += 1
            try:
                hashed.update(run(info.module_cls, sample, training))
            except Exception as error:
                raised += 1
                hashed.update(f"{type(error).__name__}: {error}".encode())
    print(info.name, f"{ran} of {count} samples, {raised} raised", hashed.hexdigest()[:16], flush=True)
print(len(module_db[first::step]), "entries")

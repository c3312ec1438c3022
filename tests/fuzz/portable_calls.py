"""Calls of every operator that `portable()` lets run, and calls that are changed at random: input for the fuzzer.

Calls are taken down while the cases of the tests run, forward and backward, and while torch's own samples of every
operator (`op_db`) do.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import random
import sys
import types
import unittest
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from unittest import mock

import torch
from torch import Tensor
from torch.utils import _pytree

import samerun
from samerun.numerics.aten_handlers.table import COMPOSED, MEMBERS
from samerun.numerics.verification import calls
from samerun.numerics.verification.calls import RecordedCall

MOST_OF_ONE = 30
"""Calls of one operator that are taken down, with different shapes."""
MOST_VALUES = 20_000
DTYPES = (
    torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.bool, torch.uint8, torch.float32
)  # fmt: skip
ODD_INDICES = (-1, -2, -100, 0, 1, 3, 100, 2**31 - 1, -(2**31))
ODD_INTEGERS = (-100, -2, -1, 0, 1, 2, 3, 17, 50, 2**40)
ODD_FLOATS = (0.0, -1.0, 1.0, 0.5, 2.0, math.nan, math.inf, -math.inf)


class Noting(calls.CallRecorder):
    """Takes down the calls of members of the table, up to `MOST_OF_ONE` of each."""

    def __init__(self) -> None:
        super().__init__()
        self._counts: dict[str, int] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        schema = func._schema
        names = {schema.name, schema.name.rstrip("_"), f"{schema.name}.{schema.overload_name or 'default'}"}
        wanted = not names.isdisjoint(MEMBERS.keys() | COMPOSED.keys()) or schema.name.startswith("aten::_foreach_")
        if not wanted or self._counts.get(str(func), 0) >= MOST_OF_ONE or sum_of_sizes((args, kwargs)) > MOST_VALUES:
            return func(*args, **(kwargs or {}))
        before = len(self.calls)
        out = super().__torch_dispatch__(func, types, args, kwargs)
        self._counts[str(func)] = self._counts.get(str(func), 0) + len(self.calls) - before
        return out


def sum_of_sizes(arguments: Any) -> int:
    return sum(leaf.numel() for leaf in _pytree.tree_leaves(arguments) if isinstance(leaf, Tensor))


def calls_of_cases() -> list[RecordedCall]:
    """Of the tests of the table, and of the composites, which no mode sees."""
    from portable_cases import run
    from portable_operator_cases import CASES, OPTIMIZERS, X

    noting = Noting()
    with samerun.portable(), noting:
        for _, function, inputs in CASES:
            run(function, inputs, torch.float32)
        for make in OPTIMIZERS:
            p = torch.nn.Parameter(X.float())
            for options in ({"fused": True}, {"foreach": True}, {}):
                optimizer = make([p], **options)
                for _ in range(2):
                    (p * p).sum().backward()
                    optimizer.step()
    return [*noting.calls.values(), *calls_of_composites()]


def calls_of_composites() -> Iterator[RecordedCall]:
    q, x, weight = torch.ones(2, 3, 5, 8), torch.ones(4, 2, 6), torch.ones(6)
    yield RecordedCall("aten.scaled_dot_product_attention.default", "", (q, q, q), {})
    yield RecordedCall("aten.scaled_dot_product_attention.default", "", (q, q, q, torch.ones(5, 5)), {"scale": 0.5})
    yield RecordedCall("aten.scaled_dot_product_attention.default", "", (q, q, q), {"enable_gqa": True})
    yield RecordedCall("aten.rms_norm.default", "", (x, [6], weight), {})
    yield RecordedCall("aten.layer_norm.default", "", (x, [2, 6], torch.ones(2, 6), torch.ones(2, 6)), {})
    yield RecordedCall("aten.batch_norm.default", "", (x, *[torch.ones(2)] * 4, True, 0.1, 1e-5, False), {})
    yield RecordedCall("aten.linear.default", "", (x, torch.ones(5, 6), torch.ones(5)), {})
    for kind, gates, states in (("lstm", 4, 2), ("gru", 3, 1), ("rnn_tanh", 1, 1)):
        weights = [torch.ones(gates * 5, 6), torch.ones(gates * 5, 5), torch.ones(gates * 5), torch.ones(gates * 5)]
        state: Any = [torch.zeros(1, 2, 5)] * states if states > 1 else torch.zeros(1, 2, 5)
        yield RecordedCall(f"aten.{kind}.input", "", (x, state, weights, True, 1, 0.0, True, False, False), {})
        flat: Any = [torch.zeros(2, 5)] * states if states > 1 else torch.zeros(2, 5)
        yield RecordedCall(f"aten.{kind}_cell.default", "", (x[0], flat, *weights), {})


def op_db() -> list[Any]:
    """torch's own samples. They need the package `expecttest` for nothing but a base class."""
    if "expecttest" not in sys.modules:
        stub: Any = types.ModuleType("expecttest")
        stub.TestCase, stub.assert_expected_inline = unittest.TestCase, None
        sys.modules["expecttest"] = stub
    # Imported, torch's test helpers forbid this whole process to set a flag of torch.backends: other tests set them.
    with mock.patch.object(torch.backends, "disable_global_flags", lambda: None):
        from torch.testing._internal.common_methods_invocations import op_db

    return list(op_db)


def calls_of_samples() -> list[RecordedCall]:
    noting = Noting()
    for operator in op_db():
        if torch.float32 not in operator.dtypes:
            continue
        gradient = operator.supports_autograd
        with contextlib.suppress(Exception), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            samples = operator.sample_inputs("cpu", torch.float32, requires_grad=gradient)
            for sample in itertools.islice(samples, 20):
                with contextlib.suppress(Exception), samerun.portable(unsupported="warn"), noting:
                    found = operator(sample.input, *sample.args, **sample.kwargs)
                    outs = [x for x in _pytree.tree_leaves(found) if isinstance(x, Tensor) and x.requires_grad]
                    if outs:
                        torch.autograd.backward(outs, [torch.ones_like(out) for out in outs])
    return list(noting.calls.values())


@dataclass
class WrongSample:
    """Arguments that torch lists as ones that its operator refuses."""

    name: str
    operator: Any
    sample: Any

    def run(self, inside: bool) -> Any:
        sample = self.sample
        with samerun.portable() if inside else contextlib.nullcontext():
            return self.operator(sample.input, *sample.args, **sample.kwargs)


def wrong_samples() -> list[WrongSample]:
    """Of all operators for which torch lists any, in a fixed order."""
    found = []
    for operator in op_db():
        if operator.error_inputs_func is None:
            continue
        torch.manual_seed(0)
        for number, wrong in enumerate(operator.error_inputs("cpu")):
            name = f"{operator.name} {operator.variant_test_name} {number}"
            found.append(WrongSample(name, operator, wrong.sample_input))
    return found


def change(call: RecordedCall, chance: random.Random) -> RecordedCall:
    """The call with one or two of its arguments changed."""
    leaves, spec = _pytree.tree_flatten((list(call.args), dict(call.kwargs)))
    for _ in range(chance.choice([1, 1, 1, 2])):
        places = [at for at, leaf in enumerate(leaves) if leaf is not None]
        if not places:
            break
        at = chance.choice(places)
        if isinstance(leaves[at], Tensor):
            others = [leaf for leaf in leaves if isinstance(leaf, Tensor)]
            kind = chance.random()
            leaves[at] = (
                None if kind < 0.05 else chance.choice(others) if kind < 0.12 else change_tensor(leaves[at], chance)
            )
        else:
            leaves[at] = change_value(leaves[at], chance)
    args, kwargs = _pytree.tree_unflatten(leaves, spec)
    for at, value in enumerate(args):
        if isinstance(value, list) and value and isinstance(value[0], int) and chance.random() < 0.1:
            args[at] = chance.choice([value[:-1], [*value, 1], [-value[0], *value[1:]]])
    return RecordedCall(call.operator, "", tuple(args), kwargs)


def change_tensor(x: Tensor, chance: random.Random) -> Tensor:
    """Another shape, type, stride or value, in memory of its own."""
    shape = list(x.shape)
    if x.dtype in (torch.int32, torch.int64) and x.numel() and chance.random() < 0.5:
        return _with_one_value(x, chance.choice(ODD_INDICES), chance)
    kinds = ["scalar", "type", "empty", "longer"]
    if shape:
        kinds += ["size", "size", "size", "shorter", "spread", "expanded"]
    if len(shape) > 1:
        kinds += ["transposed"]
    if x.is_floating_point() and x.numel():
        kinds += ["value"]
    kind = chance.choice(kinds)
    if kind == "type":
        return x.to(chance.choice(DTYPES))
    if kind == "transposed":
        return x.transpose(chance.randrange(len(shape)), chance.randrange(len(shape)))
    if kind == "expanded":
        return x[tuple(slice(0, 1) for _ in shape)].expand(x.shape) if x.numel() else x
    if kind == "spread":
        return torch.stack([x, x], -1)[..., 0]
    if kind == "value":
        return _with_one_value(x, chance.choice(ODD_FLOATS), chance)
    if kind == "size":
        dim = chance.randrange(len(shape))
        shape[dim] = max(0, chance.choice([shape[dim] - 1, shape[dim] + 1, 0, 1, 2, shape[dim] * 2, shape[dim] + 7]))
    elif kind == "longer":
        shape.insert(chance.randrange(len(shape) + 1), chance.choice([1, 1, 2, 0]))
    elif kind == "shorter":
        del shape[chance.randrange(len(shape))]
    else:
        shape = [] if kind == "scalar" else [0]
    out = torch.zeros(shape, dtype=x.dtype)
    if out.numel() and x.numel():
        out.view(-1).copy_(x.reshape(-1)[torch.arange(out.numel()) % x.numel()])
    return out


def _with_one_value(x: Tensor, value: float, chance: random.Random) -> Tensor:
    out = x.clone(memory_format=torch.contiguous_format)
    out.view(-1)[chance.randrange(out.numel())] = value
    return out


def change_value(value: Any, chance: random.Random) -> Any:
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return chance.choice([value - 1, value + 1, *ODD_INTEGERS])
    if isinstance(value, float):
        return chance.choice(ODD_FLOATS)
    return value


def show(call: RecordedCall) -> str:
    def one(leaf: Any) -> Any:
        if not isinstance(leaf, Tensor):
            return leaf
        strides = "" if leaf.is_contiguous() else f" strides {leaf.stride()}"
        return f"<{str(leaf.dtype).removeprefix('torch.')} {list(leaf.shape)}{strides}>"

    return f"{call.operator}{_pytree.tree_map(one, (call.args, call.kwargs))}"

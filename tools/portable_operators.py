"""Run torch's own operator samples (op_db), forward and backward, under `portable()`, and judge each operator.

python tools/portable_operators.py                                 every operator in every type; prints the table
python tools/portable_operators.py --dtype float32 --operator exp  some; `--verbose` says what went wrong
python tools/portable_operators.py --json FILE                     also write every operator's verdict

An operator is right in a type if each of its samples is: the same dtypes and shapes as torch's, and values within
the bound around torch's float64 or complex128 result (integers: equal). It is refused if a sample raised
NotPortableError; `other` if a sample gave something else; `error` if it raised another error than torch does. Exits
with 1 if any operator is `other` or `error`.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import numpy as np
import torch
from torch import Tensor
from torch.utils import _pytree
from torch.utils._python_dispatch import TorchDispatchMode

import samerun

DTYPES = ("float32", "bfloat16", "float16", "float64", "int64", "bool", "complex64")
VERDICTS = ("right", "refused", "other", "error")
UNINITIALIZED = frozenset(
    [
        "empty",
        "empty_like",
        "empty_permuted",
        "empty_strided",
        "new_empty",
        "new_empty_strided",
        "resize_",
        "resize_as_",
    ]
)
"""Only dtype and shape of these mean anything."""
ULPS = {torch.float32: 64, torch.float64: 64, torch.complex64: 64, torch.complex128: 64}
"""Allowed distance from the wide result, in epsilons of the largest value of the tensor, besides twice the distance of
torch's own result. Half types, which are rounded once: 4."""


class Verdict(NamedTuple):
    """Of one sample or, the worst of them, of one operator."""

    kind: str
    why: str


def wide_dtype(dtype: torch.dtype) -> torch.dtype:
    if dtype.is_complex:
        return torch.complex128
    return torch.float64 if dtype.is_floating_point else dtype


def widen(value: Any) -> Any:
    """Tensors and dtypes of floating point in float64 or complex128; all else as it is."""
    if isinstance(value, Tensor) and value.layout is torch.strided and wide_dtype(value.dtype) is not value.dtype:
        return value.detach().to(wide_dtype(value.dtype)).requires_grad_(value.requires_grad)
    if isinstance(value, torch.dtype):
        return wide_dtype(value)
    return value


def seed_generators() -> None:
    torch.manual_seed(7)
    np.random.seed(7)
    random.seed(7)


def grad_for(x: Tensor) -> Tensor:
    """A gradient with few bits, so that every type holds it exactly."""
    count = torch.arange(x.numel(), dtype=torch.float64).reshape(x.shape)
    return ((count * 7 % 5 - 2) / 2 + 0.25).to(x.dtype)


class Outcome(NamedTuple):
    outputs: list[Any]
    gradients: list[Tensor | None] | None
    """None: there is no backward pass, or it failed in torch."""
    is_random: bool


def run_sample(
    call: Callable[..., Any],
    sample: Any,
    portable: bool,
    with_backward: bool,
    make_watcher: Callable[[], Any] = nullcontext,
) -> Outcome:
    """Outputs and gradients of one sample, of which each run takes a copy of its own."""

    def copy(value: Any) -> Any:
        if not isinstance(value, Tensor) or value.layout is not torch.strided:
            return value
        fresh = torch.empty_strided(value.shape, value.stride(), dtype=value.dtype) if _is_dense(value) else None
        fresh = value.detach().clone() if fresh is None else fresh.copy_(value.detach())
        return fresh.requires_grad_(value.requires_grad)

    args, kwargs = _pytree.tree_map(copy, ((sample.input, *sample.args), sample.kwargs))
    leaves = [x for x in _pytree.tree_leaves((args, kwargs)) if isinstance(x, Tensor) and x.requires_grad]
    if with_backward and call.__name__.endswith("_"):  # a leaf must not be written into
        args = (args[0].clone() if isinstance(args[0], Tensor) else args[0], *args[1:])
    seed_generators()
    draws = DrawWatcher()
    with samerun.portable() if portable else draws, make_watcher():
        outputs, gradients = _forward_and_backward(call, args, kwargs, leaves, sample, with_backward, portable)
    return Outcome(outputs, gradients, draws.found)


class DrawWatcher(TorchDispatchMode):
    """Notices whether random numbers are drawn."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.found = False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if torch.Tag.nondeterministic_seeded not in func.tags:
            return func(*args, **(kwargs or {}))
        before = torch.random.get_rng_state()
        found = func(*args, **(kwargs or {}))
        self.found = self.found or not torch.equal(before, torch.random.get_rng_state())
        return found


def _is_dense(x: Tensor) -> bool:
    return x.is_contiguous() or all(stride for stride, size in zip(x.stride(), x.shape, strict=True) if size > 1)


def _forward_and_backward(
    call: Callable[..., Any], args: Any, kwargs: Any, leaves: list[Tensor], sample: Any, backward: bool, strict: bool
) -> tuple[list[Any], list[Tensor | None] | None]:
    found = call(*args, **kwargs)
    if sample.output_process_fn_grad is not None:
        found = sample.output_process_fn_grad(found)
    outputs = _pytree.tree_leaves(found)
    roots = [x for x in outputs if isinstance(x, Tensor) and x.requires_grad]
    if not backward or not roots or not leaves:
        return outputs, None
    try:
        gradients = torch.autograd.grad(roots, leaves, [grad_for(x) for x in roots], allow_unused=True)
    except Exception:
        if strict:
            raise
        return outputs, None
    return outputs, list(gradients)


def describe_difference(ours: Any, same: Any, wide: Any, least_scale: float = 0.0, accuracy: float = 0.0) -> str:
    """Why ours is not torch's result (`same`: in the same type, `wide`: in float64), or "".

    `least_scale`: of what was added up, where it may cancel (gradients, of incoming ones about 1).
    """
    if not isinstance(same, Tensor):
        return "" if type(ours) is type(same) and (ours == same or ours != ours) else f"{ours!r} instead of {same!r}"
    if not isinstance(ours, Tensor):
        return f"{type(ours).__name__} instead of a tensor"
    if ours.dtype is not same.dtype or ours.shape != same.shape:
        return f"{ours.dtype} {list(ours.shape)} instead of {same.dtype} {list(same.shape)}"
    if ours.layout is not torch.strided:
        return "" if torch.equal(ours.to_dense(), same.to_dense()) else "other values"
    ours, same = ours.detach(), same.detach()
    if ours.is_complex():
        ours, same = (torch.view_as_real(x.resolve_conj()) for x in (ours, same))
        exact = torch.view_as_real(wide.detach().resolve_conj()) if _fits(wide, ours) and wide.is_complex() else None
        return _describe_real_difference(ours, same, exact, least_scale, accuracy)
    return _describe_real_difference(ours, same, wide.detach() if _fits(wide, ours) else None, least_scale, accuracy)


def _fits(wide: Any, x: Tensor) -> bool:
    return isinstance(wide, Tensor) and wide.shape == x.shape


def _describe_real_difference(
    ours: Tensor, same: Tensor, wide: Tensor | None, least_scale: float, accuracy: float
) -> str:
    if not ours.is_floating_point():
        if torch.equal(ours, same) or (wide is not None and torch.equal(ours, wide.to(ours.dtype))):
            return ""
        return f"{int((ours != same).sum())} of {ours.numel()} integers differ"
    if ours.numel() == 0:
        return ""
    candidates = [same] if wide is None or not wide.is_floating_point() else [wide, same]
    ulps = ULPS.get(ours.dtype, 4)
    exact = candidates[0].to(ours.dtype).double()
    own_error = _finite_max((same.double() - exact).abs())
    right = torch.zeros(ours.shape, dtype=torch.bool)
    for candidate in candidates:
        want, got = candidate.to(ours.dtype).double(), ours.double()
        relative = max(ulps * torch.finfo(ours.dtype).eps, accuracy)
        bound = relative * max(_finite_max(want.abs()), least_scale) + 2 * own_error
        right |= (want == got) | (want.isnan() & got.isnan()) | ((want - got).abs() <= bound)
    if bool(right.all()):
        return ""
    at = int((~right).reshape(-1).to(torch.uint8).argmax())
    mine, theirs, truth = (float(x.reshape(-1)[at]) for x in (ours, same, exact))
    return f"{int((~right).sum())} of {ours.numel()} values: {mine!r}, torch {theirs!r}, wide {truth!r}"


def _finite_max(x: Tensor) -> float:
    finite = x[x.isfinite()]
    return float(finite.max()) if finite.numel() else 0.0


def _sorted(x: Tensor, dim: int = -1, descending: bool = False, stable: bool | None = None) -> Any:
    return torch.sort(x, dim=dim, descending=descending, stable=True)


def _topk(x: Tensor, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> Any:
    values, places = _sorted(x, dim, largest)
    return (values, places) if x.dim() == 0 else (values.narrow(dim, 0, k), places.narrow(dim, 0, k))


def _with_first_place(choose: Callable[..., Any]) -> Callable[..., Any]:
    """`choose` (torch.mode, for one), with the first place of each value that it chose."""

    def chosen(x: Tensor, *args: Any, **kwargs: Any) -> Any:
        found = choose(x, *args, **kwargs)
        if isinstance(found, Tensor) or x.dim() == 0:
            return found
        dim = kwargs.get("dim", args[-2] if len(args) > 1 and isinstance(args[-1], bool) else args[-1] if args else -1)
        keepdim = found[0].dim() == x.dim()
        value = found[0].detach() if keepdim else found[0].detach().unsqueeze(dim)
        equal = (x.detach() == value) | (x.detach().isnan() & value.isnan())
        place = equal.to(torch.uint8).argmax(dim, keepdim=True)
        values = x.gather(dim, place)
        return (values, place) if keepdim else (values.squeeze(dim), place.squeeze(dim))

    return chosen


def _kthvalue(x: Tensor, k: int, *args: Any, **kwargs: Any) -> Any:
    return _with_first_place(lambda given, *rest, **named: torch.kthvalue(given, k, *rest, **named))(x, *args, **kwargs)


REFERENCES: dict[str, Callable[..., Any]] = {
    "sort": _sorted,
    "argsort": lambda *args, **kwargs: _sorted(*args, **kwargs)[1],
    "msort": lambda x: _sorted(x, 0)[0],
    "topk": _topk,
    "kthvalue": _kthvalue,
    **{name: _with_first_place(getattr(torch, name)) for name in ("mode", "median", "nanmedian")},
    "nn.functional.hardsigmoid": lambda x, **settings: (
        (x + 3).clamp(0, 6) / 6 if x.is_floating_point() else torch.nn.functional.hardsigmoid(x, **settings)
    ),
}
"""What torch leaves open and the specification fixes: of equal values the first is meant. torch's sort does so when it
is asked to. And where torch's float64 kernel has constants of float32."""

TORCH_ACCURACY = {
    "digamma": 1e-9, "polygamma": 1e-9, "special.polygamma": 1e-9, "lgamma": 1e-9, "mvlgamma": 1e-9,
    "linalg.pinv": 1e-12, "native_layer_norm": 1e-12, "nn.functional.ctc_loss": 1e-12,
    "special.bessel_j0": 1e-6, "special.bessel_j1": 1e-6,
}  # fmt: skip
"""What torch's own float64 kernels are wrong by (trigamma by 1e-10, Bessel functions by 1e-8), of the largest value."""


def judge_sample(
    operator: Any, sample: Any, dtype: torch.dtype, make_watcher: Callable[[], Any] = nullcontext
) -> Verdict:
    """`make_watcher`: a context inside `portable()`."""
    call, has_backward = operator.op, _has_backward(operator, dtype)
    reference = REFERENCES.get(operator.name, call)
    try:
        same = run_sample(reference, sample, False, has_backward)
    except Exception as torch_error:
        return _judge_refusal_of_torch(call, sample, torch_error)
    try:
        ours = run_sample(call, sample, True, has_backward and same.gradients is not None, make_watcher)
    except samerun.NotPortableError as error:
        return Verdict("refused", str(error).split(": ", 1)[-1].splitlines()[0])
    except Exception as error:
        return Verdict("error", f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}")
    try:
        wide_sample = sample.transform(widen)
        wide = run_sample(reference, wide_sample, False, has_backward and same.gradients is not None)
    except Exception:
        wide = same
    return _judge_outcomes(operator.name, ours, same, wide, 0.0 if isinstance(sample.input, Tensor) else 1.0)


def _judge_outcomes(name: str, ours: Outcome, same: Outcome, wide: Outcome, least_scale: float) -> Verdict:
    """`least_scale`: of the terms of what no tensor goes into, a window, whose cosines may cancel."""
    if len(ours.outputs) != len(same.outputs):
        return Verdict("other", f"{len(ours.outputs)} results instead of {len(same.outputs)}")
    shape_only = same.is_random or wide.is_random or name in UNINITIALIZED
    for place, pairs in (("result", (ours.outputs, same.outputs, wide.outputs)),
                         ("gradient", (ours.gradients, same.gradients, wide.gradients))):  # fmt: skip
        mine, theirs, exact = (each or [] for each in pairs)
        if len(exact) != len(theirs):
            exact = theirs
        for number, (x, y, z) in enumerate(zip(mine, theirs, exact, strict=True)):
            if shape_only and isinstance(x, Tensor) and isinstance(y, Tensor):
                x, y, z = (torch.zeros_like(each) for each in (x, y, y))
            if why := describe_difference(
                x, y, z, least_scale if place == "result" else 1.0, TORCH_ACCURACY.get(name, 0)
            ):
                return Verdict("other", f"{place} {number}: {why}")
    return Verdict("right", "")


def _judge_refusal_of_torch(call: Callable[..., Any], sample: Any, torch_error: Exception) -> Verdict:
    """torch itself raises: ours must too."""
    try:
        run_sample(call, sample, True, False)
    except samerun.NotPortableError:
        return Verdict("right", "")
    except Exception as error:
        if isinstance(error, type(torch_error)):
            return Verdict("right", "")
        return Verdict("error", f"{type(error).__name__} instead of {type(torch_error).__name__}: {torch_error}")
    return Verdict("other", f"a result where torch raises {type(torch_error).__name__}: {torch_error}")


def _has_backward(operator: Any, dtype: torch.dtype) -> bool:
    return bool(operator.supports_autograd and dtype in operator.supported_backward_dtypes("cpu"))


def iterate_samples(operator: Any, dtype: torch.dtype, count: int) -> Iterator[Any]:
    seed_generators()
    yield from islice(operator.sample_inputs("cpu", dtype, requires_grad=_has_backward(operator, dtype)), count)


def judge_operator(operator: Any, dtype: torch.dtype, count: int) -> Verdict:
    """The worst verdict of its first `count` samples."""
    worst = Verdict("right", "")
    before = torch.get_default_dtype()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            for number, sample in enumerate(iterate_samples(operator, dtype, count)):
                found = judge_sample(operator, sample, dtype)
                if VERDICTS.index(found.kind) > VERDICTS.index(worst.kind):
                    worst = Verdict(found.kind, f"sample {number}: {found.why}")
        finally:
            torch.set_default_dtype(before)
    return worst


def select_operators(names: Sequence[str], dtype: torch.dtype) -> list[Any]:
    """torch's operators that support the type, in the order of their names; all where no name is given."""
    # That import forbids the process to set switches of torch.backends; a process that tests other things too needs it.
    with mock.patch.object(torch.backends, "disable_global_flags", lambda: None):
        from torch.testing._internal.common_methods_invocations import op_db

    chosen: list[Any] = [op for op in list[Any](op_db) if dtype in op.supported_dtypes("cpu")]
    return sorted((op for op in chosen if not names or op.name in names), key=full_name)


def full_name(operator: Any) -> str:
    return f"{operator.name}.{operator.variant_test_name}" if operator.variant_test_name else str(operator.name)


def count_verdicts(verdicts: dict[str, Verdict]) -> dict[str, int]:
    counts = Counter(each.kind for each in verdicts.values())
    return {kind: counts[kind] for kind in VERDICTS}


def print_table(found: dict[str, dict[str, Verdict]]) -> None:
    print(f"{'':10}" + "".join(f"{kind:>9}" for kind in (*VERDICTS, "of")))
    for dtype, verdicts in found.items():
        counts = count_verdicts(verdicts)
        print(f"{dtype:10}" + "".join(f"{n:9}" for n in (*counts.values(), len(verdicts))))


def main() -> int:
    parser = argparse.ArgumentParser(description=str(__doc__).split("\n")[0])
    parser.add_argument("--dtype", action="append", choices=DTYPES)
    parser.add_argument("--operator", action="append", default=[])
    parser.add_argument("--samples", type=int, default=12)
    parser.add_argument("--every", type=int, default=1, help="only every n-th operator")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--verbose", action="store_true")
    options = parser.parse_args()
    found: dict[str, dict[str, Verdict]] = {}
    for name in options.dtype or DTYPES:
        dtype = getattr(torch, name)
        found[name] = {}
        for operator in select_operators(options.operator, dtype)[:: options.every]:
            verdict = found[name][full_name(operator)] = judge_operator(operator, dtype, options.samples)
            if options.verbose and verdict.kind != "right":
                print(f"{name} {full_name(operator)}: {verdict.kind}: {verdict.why}", flush=True)
    print_table(found)
    if options.json is not None:
        text = {dtype: {op: list(each) for op, each in verdicts.items()} for dtype, verdicts in found.items()}
        options.json.write_text(json.dumps(text, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    return int(any(each.kind in VERDICTS[2:] for verdicts in found.values() for each in verdicts.values()))


if __name__ == "__main__":
    sys.exit(main())

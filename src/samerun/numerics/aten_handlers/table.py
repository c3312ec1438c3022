"""The table of the specification: every operator that `portable()` lets run, and how a name is looked up in it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, NoReturn

import torch
from torch import Tensor
from torch._ops import OpOverload

from samerun.numerics.aten_handlers import (
    arithmetic,
    attention,
    bessel_functions,
    collectives,
    complex_numbers,
    convolution,
    ctc_loss,
    cuda_overrides,
    distributions,
    factorizations,
    functions,
    grid_sample,
    indexing,
    interpolation,
    linear_algebra,
    losses,
    norms,
    optimizers,
    order_statistics,
    pooling,
    quantized,
    random,
    recurrent,
    reductions,
    softmax,
    sparse,
    special_functions,
    structured_updates,
)
from samerun.numerics.aten_handlers.checks import Runner, raise_torch_error_unless_accepted, with_meta_function_check
from samerun.numerics.aten_handlers.declare import Handler, Members, NoPortableKernel
from samerun.numerics.aten_handlers.exact import EXACT, EXACT_OVERLOADS

FAMILIES = (
    arithmetic, functions, reductions, softmax, norms, losses, linear_algebra, convolution, pooling, indexing,
    interpolation, random, distributions, optimizers, grid_sample, order_statistics, ctc_loss,
    special_functions, bessel_functions, factorizations, structured_updates,
)  # fmt: skip
COMPOSED: Members = {
    **attention.COMPOSED, **recurrent.COMPOSED, **recurrent.QUANTIZED, **norms.COMPOSED, **grid_sample.COMPOSED,
    **order_statistics.COMPOSED,
}  # fmt: skip
"""Written in other operators of the table, which are looked up in turn."""
MEMBERS: Members = {
    **{name: handler for family in FAMILIES for name, handler in family.MEMBERS.items()},
    **complex_numbers.FROM_REAL,
}

TensorKind = Literal["cpu", "cuda", "complex", "sparse"]
"""Dense real tensors of the CPU, or what one of the tensors is besides."""
TABLES: dict[TensorKind, tuple[Members, frozenset[str], frozenset[str]]] = {
    "cpu": (MEMBERS, EXACT | sparse.MAKERS, EXACT_OVERLOADS),
    "cuda": (
        {**MEMBERS, **cuda_overrides.MEMBERS},
        EXACT - frozenset(cuda_overrides.MEMBERS),
        EXACT_OVERLOADS - frozenset(cuda_overrides.MEMBERS),
    ),
    "complex": ({**complex_numbers.MEMBERS, **random.ON_COMPLEX}, complex_numbers.EXACT, frozenset()),
    "sparse": (sparse.MEMBERS, sparse.EXACT | sparse.MAKERS, frozenset()),
}
"""Kind -> members, exact operators, exact overloads."""

# Asking torch's meta function takes time for each new signature, which programs with changing shapes pay again and
# again; where a member already refuses what torch refuses, it is not asked.
SELF_CHECKED = frozenset(
    name
    for members in (arithmetic.MEMBERS, functions.MEMBERS, reductions.MEMBERS, linear_algebra.PRODUCTS, random.MEMBERS)
    for name in members
) | {"aten::allclose", "aten::_weight_norm_interface", *recurrent.QUANTIZED}
"""Members whose own operators refuse what torch refuses: its meta function is not asked. (With packed weights, which
are no tensors, it would crash.)"""


_CHOOSE_AMONG_EQUALS = frozenset(
    ("aten::sort", "aten::topk", "aten::index_put", "aten::_index_put_impl", "aten::_unsafe_index_put", "aten::put")
)
WHOLE_BY_TORCH = frozenset(
    name
    for members in (
        arithmetic.MEMBERS, functions.MEMBERS, special_functions.MEMBERS, bessel_functions.MEMBERS, reductions.MEMBERS,
        softmax.MEMBERS, norms.MEMBERS, losses.MEMBERS, linear_algebra.PRODUCTS, indexing.MEMBERS,
        structured_updates.MEMBERS,
    )
    for name in members
) - _CHOOSE_AMONG_EQUALS  # fmt: skip
"""Members whose results of whole numbers are the same in any order: torch's own kernel computes those."""


def portable_operator_names() -> set[str]:
    """Names of the portable operators, without overloads and the underscore of what writes in place."""
    every = {*MEMBERS, *COMPOSED, *EXACT, *EXACT_OVERLOADS}
    names = (name.removeprefix("aten::").split(".")[0] for name in every)
    return {name if name.endswith("__") else name.removesuffix("_") for name in names}


def resolve_runner_unless_exact(func: OpOverload, kind: TensorKind = "cpu") -> Runner | None:
    """How to run an operator; None where torch's own kernel is exact. What is not in the table refuses when run."""
    members, exact, exact_overloads = TABLES[kind]
    if getattr(func, "_schema", None) is None:
        return _raise_no_portable_kernel
    name = func._schema.name
    overload = f"{name}.{func._schema.overload_name or 'default'}"
    if not name.startswith("aten::"):
        if name == "c10d::allreduce_":
            return _run_allreduce
        if name in quantized.MEMBERS:
            return _make_functional_runner(quantized.MEMBERS[name])
        return (
            None
            if name in collectives.MOVES or name.split("::")[0] == "profiler"
            else _make_decomposing_or_refusing_runner(func)
        )
    composed = None if kind in ("complex", "sparse") else COMPOSED.get(overload) or COMPOSED.get(name)
    if composed is not None:
        inside: Runner = lambda mode, func, args, kwargs: _call_inside_mode(mode, composed, args, kwargs)  # noqa: E731
        return inside if {overload, name} & SELF_CHECKED else with_meta_function_check(inside)
    handler = members.get(overload) or members.get(name)
    if handler is not None:
        outs = [argument.name for argument in func._schema.arguments if argument.is_out]
        run = _make_out_runner(handler, outs) if outs else _make_functional_runner(handler)
        if kind == "sparse":
            return run  # meta functions know nothing of sparse tensors
        run = run if overload in SELF_CHECKED or name in SELF_CHECKED else with_meta_function_check(run)
        return _with_whole_numbers_by_torch(run) if {overload, name} & WHOLE_BY_TORCH else run
    if name in exact or overload in exact_overloads:
        return None
    if name.endswith("_"):
        base = overload.replace(name, name[:-1])
        if name[:-1] in exact or base in exact_overloads:
            return None
        handler = members.get(base) or members.get(name[:-1])
        if handler is not None:
            run = _make_in_place_runner(handler)
            if kind == "sparse":
                return run
            run = run if base in SELF_CHECKED or name[:-1] in SELF_CHECKED else with_meta_function_check(run)
            return _with_whole_numbers_by_torch(run) if {overload, name} & WHOLE_BY_TORCH else run
    if name.startswith("aten::_foreach_") and kind != "sparse":
        alone = name.removeprefix("aten::_foreach_")
        if kind != "cuda" and f"aten::{alone.rstrip('_')}" in exact:  # torch's CPU kernel is a loop over `alone`
            return None
        run = with_meta_function_check(_make_foreach_runner(func, alone))
        return run if kind != "cpu" or alone.rstrip("_") not in ("add", "sub") else _by_torch_unless_scaled(run)
    return _make_decomposing_or_refusing_runner(func)


def _has_no_tensors(func: OpOverload) -> bool:
    """Whether it takes and returns none: a question about a library, such as the version of CUDA it was built for."""
    values = (*func._schema.arguments, *func._schema.returns)
    return not any("Tensor" in str(value.type) for value in values)


def _make_decomposing_or_refusing_runner(func: OpOverload) -> Runner | None:
    """Decompose an operator that torch itself writes in other operators, and look those up."""
    name = func.name()  # type: ignore[no-untyped-call]
    if not torch._C._dispatch_has_kernel_for_dispatch_key(name, "CompositeImplicitAutograd"):
        return None if _has_no_tensors(func) else _raise_no_portable_kernel
    return lambda mode, func, args, kwargs: _call_inside_mode(mode, func.decompose, args, kwargs)


def _raise_no_portable_kernel(mode: Any, func: OpOverload, args: Any, kwargs: Any) -> NoReturn:
    kinds = {str(given.dtype).removeprefix("torch.") for given in args if isinstance(given, Tensor)}
    if any(isinstance(given, Tensor) and given.layout is not torch.strided for given in args):
        raise NoPortableKernel("a sparse tensor.", "Make it dense: tensor.to_dense().")
    raise NoPortableKernel(f"{', '.join(sorted(kinds))}." if kinds else "")


def _run_allreduce(mode: Any, func: OpOverload, args: Any, kwargs: Any) -> Any:
    return collectives.allreduce(func, *args, **kwargs)


def _with_whole_numbers_by_torch(run: Runner) -> Runner:
    """`run`, for operators whose first tensor has whole numbers or booleans only where the result is floating.

    Whole numbers have no rounding: torch's kernel gives the result, and the errors, whatever its order.
    """

    def run_unless_whole(mode: Any, func: OpOverload, args: Any, kwargs: Any) -> Any:
        first = args[0] if args else None
        if not isinstance(first, Tensor) or first.is_floating_point() or first.is_complex():
            return run(mode, func, args, kwargs)
        if any(isinstance(value, Tensor) and value.is_floating_point() for value in (*args, *kwargs.values())):
            return run(mode, func, args, kwargs)  # another argument, or an `out`
        found = func(*args, **kwargs)
        results = found if isinstance(found, (tuple, list)) else (found,)
        if any(isinstance(each, Tensor) and each.is_floating_point() for each in results):
            return run(mode, func, args, kwargs)
        return found

    return run_unless_whole


def _make_functional_runner(handler: Handler) -> Runner:
    return lambda mode, func, args, kwargs: handler(*args, **kwargs)


def _call_inside_mode(mode: Any, call: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    with mode:
        return call(*args, **kwargs)


def _require_castable(result: Tensor, out: Tensor) -> None:
    if not torch.can_cast(result.dtype, out.dtype):
        raise RuntimeError(f"result type {result.dtype} can't be cast to the desired output type {out.dtype}")


def _make_in_place_runner(handler: Handler) -> Runner:
    def run(mode: Any, func: OpOverload, args: Any, kwargs: Any) -> Any:
        found = handler(*args, **kwargs)
        _require_castable(found, args[0])
        if found.shape != args[0].shape:
            raise RuntimeError(
                f"output with shape {list(args[0].shape)} doesn't match the broadcast shape {list(found.shape)}"
            )
        return args[0].copy_(found)

    return run


def _make_out_runner(handler: Handler, outs: list[str]) -> Runner:
    def run(mode: Any, func: OpOverload, args: Any, kwargs: Any) -> Any:
        given = {name: value for name, value in kwargs.items() if name not in outs}
        found = handler(*args, **given)
        results = found if isinstance(found, tuple) else (found,)
        for name, result in zip(outs, results, strict=True):
            out = kwargs[name]
            if result.dtype is not out.dtype or any(out is argument for argument in args):
                # some kernels of torch convert, or write where they read; others refuse
                raise_torch_error_unless_accepted(
                    func, args, kwargs, RuntimeError(f"{func}: {name} does not fit what it is to hold")
                )
        for name, result in zip(outs, results, strict=True):
            kwargs[name].resize_(result.shape).copy_(result)
        written = tuple(kwargs[name] for name in outs)
        return written if isinstance(found, tuple) else written[0]

    return run


def _by_torch_unless_scaled(run: Runner) -> Runner:
    """`run`, for lists that are added or subtracted: without `alpha`, torch's kernel rounds each sum once."""

    def run_if_scaled(mode: Any, func: OpOverload, args: Any, kwargs: Any) -> Any:
        return func(*args, **kwargs) if kwargs.get("alpha", 1) == 1 else run(mode, func, args, kwargs)

    return run_if_scaled


_FOREACH_BASE = {"norm": "linalg_vector_norm"}
_FOREACH_KEYWORD = {"addcmul": "value", "addcdiv": "value"}


def _make_foreach_runner(func: OpOverload, name: str) -> Runner:
    """`_foreach_x`: x for each tensor of the lists, one after the other."""
    writes = name.endswith("_")
    base = name.rstrip("_")
    alone = _FOREACH_BASE.get(base, base)
    packet = getattr(torch.ops.aten, alone, None)
    in_place = getattr(torch.ops.aten, alone + "_", None)
    if packet is None:
        return _raise_no_portable_kernel
    schema = func._schema
    lists = [
        argument.name
        for argument in schema.arguments
        if str(argument.type).startswith(("List[Tensor]", "List[number]"))
    ]
    keyword = {argument.name for argument in schema.arguments if argument.kwarg_only}

    def run(mode: Any, func: OpOverload, args: Any, kwargs: Any) -> Any:
        named = {argument.name: value for argument, value in zip(schema.arguments, args, strict=False)} | kwargs
        found = []
        with mode:
            for at in range(len(args[0])):
                positional, given = [], {}
                for argument, value in named.items():
                    one = value[at] if argument in lists and isinstance(value, (list, tuple)) else value
                    if base in _FOREACH_KEYWORD and argument in ("value", "scalars"):
                        given[_FOREACH_KEYWORD[base]] = one
                    elif argument in keyword:
                        given[argument] = one
                    else:
                        positional.append(one)
                if not writes:
                    found.append(packet(*positional, **given))
                elif in_place is not None:
                    in_place(*positional, **given)
                else:
                    positional[0].copy_(packet(*positional, **given))
        return None if writes else found

    return run

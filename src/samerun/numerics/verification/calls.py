"""Operators of a program, taken down with what they got, to be run again under other circumstances.

    python -m samerun.numerics.verification.calls CALLS ANSWER

runs them again in this process, which was started to compute with other instructions: it reads what `encode_calls`
made, and writes for each call what it gives in plain torch and inside portable().
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch._ops import OpOverload
from torch.utils import _pytree
from torch.utils._python_dispatch import TorchDispatchMode

from samerun.base.errors import NotPortableError
from samerun.numerics.aten_handlers.exact import MOVES
from samerun.numerics.dispatch.portable import portable
from samerun.numerics.dispatch.refusals import find_source_location_outside_torch
from samerun.numerics.kernels.tensors import copy_tensors_in_pytree

_MOVES = frozenset(f"aten::{name}" for name in MOVES)
_NAMES = (torch.dtype, torch.layout, torch.device, torch.memory_format)


@dataclass
class RecordedCall:
    """The first call of an operator with arguments of these shapes and types. `times`: how many such there were."""

    operator: str
    line: str
    args: Any
    kwargs: Any
    times: int = 1
    number: int = 0
    """Of all calls that compute, in order."""
    result: str = field(default="", repr=False)


class CallRecorder(TorchDispatchMode):
    """Takes down every call that computes."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.calls: dict[str, RecordedCall] = {}
        self.shapes: list[tuple[str, str]] = []
        """Operator and signature of every call, in order."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # True would import torch._dynamo at the first operator

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        schema = getattr(func, "_schema", None)
        if (
            schema is None
            or getattr(func, "is_view", False)
            or schema.name in _MOVES
            or not _can_be_rerun((args, kwargs))
        ):
            return func(*args, **kwargs)
        key = f"{func} {_format_arguments_signature((args, kwargs))}"
        if key in self.calls:
            self.calls[key].times += 1
        else:
            copied_args, copied_kwargs = copy_tensors_in_pytree((args, kwargs))
            line, number = find_source_location_outside_torch(), len(self.shapes)
            self.calls[key] = RecordedCall(str(func), line, copied_args, copied_kwargs, number=number)
        self.shapes.append((str(func), key))
        return func(*args, **kwargs)


def _can_be_rerun(arguments: Any) -> bool:
    """Whether a call can be taken down: dense CPU tensors, and no generator of the program's own."""
    leaves = _pytree.tree_leaves(arguments)
    tensors = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
    return not any(isinstance(leaf, torch.Generator) for leaf in leaves) and all(
        tensor.is_cpu and tensor.layout is torch.strided and type(tensor) in (torch.Tensor, torch.nn.Parameter)
        for tensor in tensors
    )


def _format_arguments_signature(arguments: Any) -> str:
    return repr(
        [
            (tuple(leaf.shape), leaf.stride(), str(leaf.dtype)) if isinstance(leaf, torch.Tensor) else leaf
            for leaf in _pytree.tree_leaves(arguments)
        ]
    )


def resolve_op_overload(qualified_name: str) -> OpOverload:
    """The OpOverload of a name like "aten.mm.default"."""
    space, packet, overload = qualified_name.split(".")
    found: OpOverload = getattr(getattr(getattr(torch.ops, space), packet), overload)
    return found


def reseed_with_0_and_rerun_call(call: RecordedCall, inside_portable: bool = False) -> list[torch.Tensor]:
    """Run the call again: what it gives, then what it wrote into. Random numbers are drawn from seed 0.

    Raises what the operator raises; NotPortableError inside portable() where there is no portable kernel.
    """
    args, kwargs = copy_tensors_in_pytree((call.args, call.kwargs))
    func = resolve_op_overload(call.operator)
    with torch.no_grad(), portable() if inside_portable else nullcontext():
        torch.manual_seed(0)
        result = func(*args, **kwargs)
    written = [
        args[at] if at < len(args) else kwargs.get(argument.name)
        for at, argument in enumerate(func._schema.arguments)
        if argument.alias_info is not None and argument.alias_info.is_write
    ]
    leaves = _pytree.tree_leaves((result, written))
    return [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]


def digest_results(results: list[torch.Tensor]) -> str:
    """SHA-256 of shapes, types and bits; every NaN counts as the same one."""
    digest = hashlib.sha256()
    for result in results:
        digest.update(f"{result.dtype} {tuple(result.shape)}".encode())
        value = torch.view_as_real(result) if result.is_complex() else result
        if value.is_floating_point():
            value = torch.where(value.isnan(), torch.full((), float("nan"), dtype=value.dtype), value)
        digest.update(value.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes() if value.numel() else b"")
    return digest.hexdigest()


def rerun_and_digest_or_error(call: RecordedCall, inside_portable: bool) -> str:
    """Run the call again: the digest of what it gives, or the words of its error."""
    try:
        return digest_results(reseed_with_0_and_rerun_call(call, inside_portable))
    except NotPortableError:
        return NO_KERNEL
    except Exception as error:  # whatever an operator says; the same words count as the same
        return f"{ERROR} {error}"


NO_KERNEL, ERROR = "no portable kernel", "error:"


@contextmanager
def temporary_torch_num_threads(num_threads: int) -> Iterator[None]:
    """Have torch compute with so many threads inside."""
    before = torch.get_num_threads()
    torch.set_num_threads(num_threads)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def encode_calls(calls: list[RecordedCall]) -> list[Any]:
    """What torch.save writes and torch.load reads without unpickling anything but tensors and plain values."""

    def encode_leaf(leaf: Any) -> Any:
        return {"torch": str(leaf).removeprefix("torch.")} if isinstance(leaf, _NAMES) else leaf

    return [[call.operator, _pytree.tree_map(encode_leaf, [list(call.args), dict(call.kwargs)])] for call in calls]


def decode_calls(saved: list[Any]) -> list[RecordedCall]:
    def is_name(value: Any) -> bool:
        return isinstance(value, dict) and set(value) == {"torch"}

    def decode_leaf(value: Any) -> Any:
        if not is_name(value):
            return value
        found = getattr(torch, value["torch"], None)  # torch.cpu is a module
        return found if isinstance(found, _NAMES) else torch.device(value["torch"])

    calls = []
    for operator, arguments in saved:
        args, kwargs = _pytree.tree_map(decode_leaf, arguments, is_leaf=is_name)
        calls.append(RecordedCall(operator, "", args, kwargs))
    return calls


def record_operator_calls(run: Callable[[], object]) -> CallRecorder:
    """Call `run`, and record the calls of operators that it makes."""
    recorder = CallRecorder()
    with recorder:
        run()
    return recorder


def rerun_calls_with_and_without_portable(calls_path: str, results_path: str) -> None:
    """Run the calls in one file again, and write their outcomes as JSON into the other."""
    calls = decode_calls(torch.load(calls_path, weights_only=True))
    outcomes = [[rerun_and_digest_or_error(call, False), rerun_and_digest_or_error(call, True)] for call in calls]
    answer = {"capability": torch.backends.cpu.get_cpu_capability(), "outcomes": outcomes}
    Path(results_path).write_text(json.dumps(answer), encoding="utf-8")


if __name__ == "__main__":
    rerun_calls_with_and_without_portable(*sys.argv[1:])

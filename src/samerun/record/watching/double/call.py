"""One operator with its arguments, and what is needed to execute it again."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

from samerun.record.digests import digest as d
from samerun.record.watching.double import execution
from samerun.record.watching.double.copies import copied
from samerun.record.watching.double.doubling import Doubling
from samerun.record.watching.double.looks import Looks
from samerun.record.watching.double.twins import Twin, may_vary, moves, view_of
from samerun.record.watching.operator import Operator, flatten
from samerun.record.watching.thread_state import ThreadState

_Tensor = torch.Tensor
_DEVICES = ("cpu", "cuda")
NO_VALUES = "tensors without values"
_profiling = torch._C._autograd._profiler_enabled


class Call:
    """An execution of an operator in the program.

    `looked`: inputs with their digest before, and the write that was the last to them then. `tainted`: tensors
    on memory that is not wholly written, with its twin. `written`: the arguments it writes into.
    """

    def __init__(self, func: Any, operator: Operator, args: Any, kwargs: Any) -> None:
        self.func, self.operator, self.args, self.kwargs = func, operator, args, kwargs
        self.place = self.phase = 0
        self.tensors: list[Any] = []
        self.others: list[Any] = []
        flatten(args, _Tensor, self.tensors, self.others)
        flatten(kwargs.values(), _Tensor, self.tensors, self.others)
        self.written = [t for t in operator.written_tensors(args, kwargs) if isinstance(t, _Tensor)]
        self.looked: list[tuple[Any, bytes, Any]] = []
        self.tainted: list[tuple[Any, Twin]] = []
        self.before: dict[int, Any] = {}
        """What tensors with a twin that are written into held before."""
        self.pristine: dict[int, Any] = {}
        """Copies of what is written into, made before it was."""
        self.draws: execution.Draws | None = None
        self.pausing = False
        self.shared: Any = []
        """What memory that others can write held before: see Witness."""
        self._positions: list[int] = []

    def why_not(self) -> str:
        """Why this call is not executed twice; "" where it may be."""
        for tensor in self.tensors:
            if not ordinary(tensor):
                return f"tensors of type {type(tensor).__name__}"
            if tensor.device.type == "meta":
                return NO_VALUES
            if tensor.device.type not in _DEVICES:
                return f"tensors on {tensor.device.type}"
        if "ScriptObject" in self.others:
            return "operators on objects"
        if _profiling():
            return "operators under torch.profiler"
        if torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing():  # type: ignore[no-untyped-call]
            return "operators captured in a CUDA graph"
        return ""

    @property
    def moves(self) -> bool:
        return moves(self.func, self.args, self.kwargs)

    def prepare(self, doubling: Doubling) -> str:
        """Copy what will be written over. Returns why the call cannot be executed twice, or ""."""
        if self.operator.random:
            self.draws = execution.Draws(self.func, self.args, self.kwargs, self.tensors)
            if not (self.draws.given or doubling.alone()):
                return "random operators while other threads run"
        for tensor in self.tensors:
            twin = doubling.twins.of(tensor)
            if twin is not None and not may_vary(tensor):
                doubling.twins.drop(tensor.untyped_storage())
            elif twin is not None:
                self.tainted.append((tensor, twin))
        twinned = {id(tensor) for tensor, _ in self.tainted}
        if execution.own_memory(self.func):
            changing = {memory_of(tensor) for tensor in self.written}
            self.pristine = copied(t for t in self.tensors if id(t) not in twinned and memory_of(t) in changing)
        else:
            self.pristine = copied(t for t in self.tensors if id(t) not in twinned)
        if twinned and not self.operator.overwrites and not self.moves:
            self.before = {id(t): t.clone() for t in self.written if id(t) in twinned}
        return ""

    def end_writes(self, looks: Looks) -> None:
        """What it wrote, if it did, is not known."""
        for tensor in filter(d.is_readable, self.written):
            looks.end_write(tensor, self, None)

    def arguments(self, twinned: bool) -> dict[int, Any]:
        """Tensors for one more execution, by the `id` of those they stand for."""
        again = copied(self.pristine.values())
        others = {key: again[id(copy)] for key, copy in self.pristine.items()}
        if twinned:
            others.update({id(tensor): view_of(tensor, twin) for tensor, twin in self.tainted})
        return others

    def results(self, out: Any) -> list[Any]:
        """What the program's execution gave: the written arguments, then the other tensors."""
        outs = tensors_in(out)
        done = {id(tensor) for tensor in self.written}
        self._positions = [
            at for at, tensor in enumerate(outs) if id(tensor) not in done and at != self.operator.opaque
        ]
        return [*self.written, *(outs[at] for at in self._positions)]

    def execute(self, state: ThreadState, fill: int, twinned: bool = True) -> list[Any]:
        """One more execution: the results in the order of `results`. Raises what the operator raises."""
        others = self.arguments(twinned)
        out = execution.execute(self.func, self.args, self.kwargs, others, self.draws, state, fill)
        outs = tensors_in(out)
        return [*(others.get(id(tensor), tensor) for tensor in self.written), *(outs[at] for at in self._positions)]


def tensors_in(out: Any) -> list[Any]:
    tensors: list[Any] = []
    flatten((out,), _Tensor, tensors, [])
    return tensors


def memory_of(tensor: Any) -> int:
    """A number that tensors on the same memory share; for others one of their own."""
    return int(tensor.untyped_storage()._cdata) if d.is_readable(tensor) else -id(tensor)


def ordinary(tensor: Any) -> bool:
    """True where no Python code of the tensor's own runs when an operator meets it."""
    return not d.has_own_dispatch(tensor) and not torch._is_functional_tensor(tensor)


def digests(tensors: Iterable[Any]) -> list[bytes]:
    return [d.digest(tensor) for tensor in tensors]

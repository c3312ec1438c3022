"""One call of an operator or of a compiled region, and what is needed to execute it again."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

from samerun.record.digests import digest as d
from samerun.record.trace import format as f
from samerun.record.watching.double import double_findings as found
from samerun.record.watching.double import execution
from samerun.record.watching.double.argument_copies import copy_tensors, substitute_tensors
from samerun.record.watching.double.double_findings import DoubleFinding
from samerun.record.watching.double.doubling import Doubling
from samerun.record.watching.double.memory_registry import MemoryRegistry
from samerun.record.watching.double.shadow_buffers import ShadowBuffer, may_vary, only_moves_elements, view_of
from samerun.record.watching.thread_state import ThreadState
from samerun.record.watching.watched_operator import WatchedOperator, flatten

_Tensor = torch.Tensor
_DEVICES = ("cpu", "cuda")
NO_VALUES = "tensors without values"
_profiling = torch._C._autograd._profiler_enabled


class DoubledCall:
    """An execution of an operator in the program.

    `looked`: inputs with their digest before, and the write that was the last to them then. `tainted`: tensors
    on memory that is not wholly written, with its twin. `written`: the arguments it writes into.
    """

    def __init__(self, func: Any, operator: WatchedOperator, args: Any, kwargs: Any) -> None:
        self.func, self.operator, self.args, self.kwargs = func, operator, args, kwargs
        self.place = self.phase = 0
        self.tensors: list[Any] = []
        self.others: list[Any] = []
        flatten(args, _Tensor, self.tensors, self.others)
        flatten(kwargs.values(), _Tensor, self.tensors, self.others)
        self.written = [t for t in operator.written_tensors(args, kwargs) if isinstance(t, _Tensor)]
        self.looked: list[tuple[Any, bytes, Any]] = []
        self.tainted: list[tuple[Any, ShadowBuffer]] = []
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
            if not runs_no_tensor_code(tensor):
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
        return only_moves_elements(self.func, self.args, self.kwargs)

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
            self.pristine = copy_tensors(t for t in self.tensors if id(t) not in twinned and memory_of(t) in changing)
        else:
            self.pristine = copy_tensors(t for t in self.tensors if id(t) not in twinned)
        if twinned and not self.operator.overwrites and not self.moves:
            self.before = {id(t): t.clone() for t in self.written if id(t) in twinned}
        return ""

    def end_writes(self, looks: MemoryRegistry) -> None:
        """What it wrote, if it did, is not known."""
        for tensor in filter(d.is_readable, self.written):
            looks.end_write(tensor, self, None)

    def arguments(self, twinned: bool) -> dict[int, Any]:
        """Tensors for one more execution, by the `id` of those they stand for."""
        again = copy_tensors(self.pristine.values())
        others = {key: again[id(copy)] for key, copy in self.pristine.items()}
        if twinned:
            others.update({id(tensor): view_of(tensor, twin) for tensor, twin in self.tainted})
        return others

    def results(self, out: Any) -> list[Any]:
        """What the program's execution gave: the written arguments, then the other tensors."""
        outs = tensors_in(out)
        done = {id(tensor) for tensor in self.written}
        self._positions = [
            at for at, tensor in enumerate(outs) if id(tensor) not in done and at != self.operator.scratch_output
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


def runs_no_tensor_code(tensor: Any) -> bool:
    """True where no Python code of the tensor's own runs when an operator meets it."""
    return not d.has_own_dispatch(tensor) and not torch._is_functional_tensor(tensor)


def digests(tensors: Iterable[Any]) -> list[bytes]:
    return [d.digest(tensor) for tensor in tensors]


NAME = "compiled graph"


class DoubledRegion:
    """One call of a compiled region. `inputs` is the list that it is given, which the call may empty."""

    def __init__(self, doubling: Doubling, state: ThreadState, inputs: Any) -> None:
        self.doubling, self.state = doubling, state
        self.inputs = list(inputs)
        self.given = [item for item in self.inputs if isinstance(item, torch.Tensor)]
        self.copies: dict[int, Any] | None = None
        self.draws = torch.get_rng_state()
        if any(not runs_no_tensor_code(tensor) or not tensor.is_cpu for tensor in self.given):
            doubling.unseen("compiled regions that do not run on the CPU alone")
        elif not doubling.alone():
            doubling.unseen("compiled regions while other threads run")
        else:
            self.copies = copy_tensors(self.given)
        for tensor in filter(d.is_readable, self.given):  # it writes where no operator is seen
            doubling.twins.drop(tensor.untyped_storage())

    def compare(self, compiled: Any, out: Any) -> None:
        """After the program's own execution: once more, with the copies."""
        doubling, state = self.doubling, self.state
        for tensor in filter(d.is_readable, self.given):
            doubling.looks.forget(tensor)
        if self.copies is None:
            return
        firsts = [*self.given, *tensors_in(out)]
        values = digests(firsts)
        again = substitute_tensors(self.inputs, self.copies)
        copies = [self.copies[id(tensor)] for tensor in self.given]
        now = torch.get_rng_state()
        torch.set_rng_state(self.draws)
        try:
            with execution.fresh_memory(execution.OTHER), execution.quiet():
                other = compiled.current_callable(again)
        except Exception:
            doubling.unseen("compiled regions, which failed when executed again")
            return
        finally:
            torch.set_rng_state(now)
        seconds = [*copies, *tensors_in(other)]
        for tensor, value, second in zip(firsts, values, seconds, strict=True):
            if d.digest(second) != value:
                flags, place = state.mode._phase_and_place(state, [])
                pair = (tensor, second) if d.is_readable(tensor) else ()
                finding = DoubleFinding(found.KERNEL, runs=2, different=1)
                doubling.findings.add(finding, NAME, place, flags & f.PHASE_MASK, pair)
                return

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
from samerun.record.watching.double.shadow_buffers import (
    ShadowBuffer,
    may_hold_other_values,
    only_moves_elements,
    shadow_view,
)
from samerun.record.watching.thread_state import ThreadState
from samerun.record.watching.watched_operator import WatchedOperator, flatten_into

_Tensor = torch.Tensor
_DEVICES = ("cpu", "cuda")
NO_VALUES = "tensors without values"
_profiling = torch._C._autograd._profiler_enabled


class DoubledCall:
    """An execution of an operator in the program.

    `inputs_seen`: each input with its digest before the call and the last write to it at that time. `with_shadow`:
    tensors on memory that is not completely written, with their shadow buffers. `written`: the arguments that the
    operator writes into.
    """

    def __init__(self, func: Any, operator: WatchedOperator, args: Any, kwargs: Any) -> None:
        self.func, self.operator, self.args, self.kwargs = func, operator, args, kwargs
        self.location_id = self.phase = 0
        self.tensors: list[Any] = []
        self.others: list[Any] = []
        flatten_into(args, _Tensor, self.tensors, self.others)
        flatten_into(kwargs.values(), _Tensor, self.tensors, self.others)
        self.written = [t for t in operator.written_tensors(args, kwargs) if isinstance(t, _Tensor)]
        self.inputs_seen: list[tuple[Any, bytes, Any]] = []
        self.with_shadow: list[tuple[Any, ShadowBuffer]] = []
        self.held_before: dict[int, Any] = {}
        """What tensors with a shadow that are written into held before."""
        self.copies_before: dict[int, Any] = {}
        """Copies of what is written into, made before it was."""
        self.draws: execution.GeneratorSnapshot | None = None
        self.pauses = False
        self.shared_snapshot: Any = []
        """What memory that others can write held before: see SharedMemoryMonitor."""
        self._output_positions: list[int] = []

    def exclusion_reason(self) -> str:
        """Returns why this call is not executed twice, or "" if it is."""
        for tensor in self.tensors:
            if not has_plain_dispatch(tensor):
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
    def only_moves_elements(self) -> bool:
        return only_moves_elements(self.func, self.args, self.kwargs)

    def prepare_second_execution(self, doubling: Doubling) -> str:
        """Copy what the operator will overwrite. Returns why the call cannot be executed twice, or ""."""
        if self.operator.random:
            self.draws = execution.GeneratorSnapshot(self.func, self.args, self.kwargs, self.tensors)
            if not (self.draws.given or doubling.is_only_thread()):
                return "random operators while other threads run"
        for tensor in self.tensors:
            shadow = doubling.shadows.find_shadow(tensor)
            if shadow is not None and not may_hold_other_values(tensor):
                doubling.shadows.drop(tensor.untyped_storage())
            elif shadow is not None:
                self.with_shadow.append((tensor, shadow))
        shadowed = {id(tensor) for tensor, _ in self.with_shadow}
        plain = [tensor for tensor in self.tensors if id(tensor) not in shadowed]
        if execution.writes_only_as_declared(self.func):
            changing = {storage_key(tensor) for tensor in self.written}
            self.copies_before = copy_tensors(t for t in plain if storage_key(t) in changing)
        else:
            self.copies_before = copy_tensors(plain)
        if shadowed and not self.operator.overwrites and not self.only_moves_elements:
            self.held_before = {id(t): t.clone() for t in self.written if id(t) in shadowed}
        return ""

    def forget_written_values(self, memory: MemoryRegistry) -> None:
        """Forget the values of the arguments it writes into: how much it wrote before it failed is unknown."""
        for tensor in filter(d.is_readable, self.written):
            memory.end_write(tensor, self, None)

    def copy_or_shadow_arguments(self, use_shadows: bool) -> dict[int, Any]:
        """Tensors for one more execution, by the `id` of those they stand for."""
        again = copy_tensors(self.copies_before.values())
        others = {key: again[id(copy)] for key, copy in self.copies_before.items()}
        if use_shadows:
            others.update({id(tensor): shadow_view(tensor, shadow) for tensor, shadow in self.with_shadow})
        return others

    def collect_results(self, out: Any) -> list[Any]:
        """The results of the program's execution: the written arguments, then the other tensors."""
        outs = collect_tensors(out)
        done = {id(tensor) for tensor in self.written}
        self._output_positions = [
            at for at, tensor in enumerate(outs) if id(tensor) not in done and at != self.operator.scratch_output
        ]
        return [*self.written, *(outs[at] for at in self._output_positions)]

    def execute(self, state: ThreadState, fill: int, use_shadows: bool = True) -> list[Any]:
        """One more execution: the results in the order of `collect_results`. Raises what the operator raises."""
        others = self.copy_or_shadow_arguments(use_shadows)
        out = execution.execute_again(self.func, self.args, self.kwargs, others, self.draws, state, fill)
        outs = collect_tensors(out)
        written = [others.get(id(tensor), tensor) for tensor in self.written]
        return [*written, *(outs[at] for at in self._output_positions)]


def collect_tensors(out: Any) -> list[Any]:
    tensors: list[Any] = []
    flatten_into((out,), _Tensor, tensors, [])
    return tensors


def storage_key(tensor: Any) -> int:
    """A number that tensors on the same memory share; for others one of their own."""
    return int(tensor.untyped_storage()._cdata) if d.is_readable(tensor) else -id(tensor)


def has_plain_dispatch(tensor: Any) -> bool:
    """True where no Python code of the tensor's own runs when an operator meets it."""
    return not d.has_own_dispatch(tensor) and not torch._is_functional_tensor(tensor)


def digest_each(tensors: Iterable[Any]) -> list[bytes]:
    return [d.digest(tensor) for tensor in tensors]


NAME = "compiled graph"


class DoubledRegion:
    """One call of a compiled region. `inputs` is the list that it is given, which the call may empty."""

    def __init__(self, doubling: Doubling, state: ThreadState, inputs: Any) -> None:
        self.doubling, self.state = doubling, state
        self.inputs = list(inputs)
        self.tensors = [item for item in self.inputs if isinstance(item, torch.Tensor)]
        self.copies: dict[int, Any] | None = None
        self.draws = torch.get_rng_state()
        if any(not has_plain_dispatch(tensor) or not tensor.is_cpu for tensor in self.tensors):
            doubling.count_not_executed("compiled regions that do not run on the CPU alone")
        elif not doubling.is_only_thread():
            doubling.count_not_executed("compiled regions while other threads run")
        else:
            self.copies = copy_tensors(self.tensors)
        for tensor in filter(d.is_readable, self.tensors):  # it writes where no operator is seen
            doubling.shadows.drop(tensor.untyped_storage())

    def execute_again_and_compare(self, compiled: Any, out: Any) -> None:
        """After the program's own execution: once more, with the copies."""
        doubling, state = self.doubling, self.state
        for tensor in filter(d.is_readable, self.tensors):
            doubling.memory.forget_values(tensor)
        if self.copies is None:
            return
        firsts = [*self.tensors, *collect_tensors(out)]
        values = digest_each(firsts)
        again = substitute_tensors(self.inputs, self.copies)
        copies = [self.copies[id(tensor)] for tensor in self.tensors]
        now = torch.get_rng_state()
        torch.set_rng_state(self.draws)
        try:
            with execution.filling_malloc_with(execution.OTHER), execution.without_warnings():
                other = compiled.current_callable(again)
        except Exception:
            doubling.count_not_executed("compiled regions, which failed when executed again")
            return
        finally:
            torch.set_rng_state(now)
        seconds = [*copies, *collect_tensors(other)]
        for tensor, value, second in zip(firsts, values, seconds, strict=True):
            if d.digest(second) != value:
                flags, location_id = state.mode._find_phase_and_location(state, [])
                pair = (tensor, second) if d.is_readable(tensor) else ()
                finding = DoubleFinding(found.KERNEL, runs=2, different=1)
                doubling.findings.report_or_count(finding, NAME, location_id, flags & f.PHASE_MASK, pair)
                return

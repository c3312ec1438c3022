"""What is executed twice (`samerun check --double`): what all threads share, and one call of an operator or a graph."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from samerun.record.digests import digest as d
from samerun.record.digests.digest import is_readable
from samerun.record.trace import format as f
from samerun.record.watching.double_execution import double_findings as found
from samerun.record.watching.double_execution import execution
from samerun.record.watching.double_execution.double_findings import UNSEEN, DoubleFinding, DoubleFindingLog
from samerun.record.watching.double_execution.execution import (
    copy_tensors_by_id_preserving_aliasing,
    install_warning_filter,
    schema_exclusion_reason,
    substitute_tensors,
)
from samerun.record.watching.double_execution.memory import (
    MemoryRegistry,
    ShadowBuffer,
    ShadowBuffers,
    SharedMemoryMonitor,
    only_moves_elements,
    tolerates_arbitrary_values,
    view_in_shadow,
)
from samerun.record.watching.recorder import Recorder
from samerun.record.watching.thread_state import ThreadState
from samerun.record.watching.watched_operator import UNORDERED, WatchedOperator, flatten_to_tensors_and_stable_values

MOST_PAUSES = 200
PAUSES_AT_A_PLACE = 6


class Doubling:
    """The memory, shadow buffers and findings of one process, and which operators are executed twice."""

    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder
        self.executions = recorder.config.executions
        self.memory = MemoryRegistry()
        self.shadows = ShadowBuffers()
        self.shared_memory = SharedMemoryMonitor()
        self.findings = DoubleFindingLog(recorder)
        self.local = threading.local()
        """`region_depth`: greater than 0 while this thread is in a compiled region."""
        self._reasons: dict[Any, str] = {}
        self._not_executed: dict[str, int] = {}
        self._pauses: dict[int, int] = {}
        self._names: dict[int, str] = {}
        self._roles: dict[int, str] = {}
        recorder.fork_callbacks.append(self.reset_in_forked_child)
        recorder.end_callbacks.append(self.report_not_executed)
        install_warning_filter()

    def reset_in_forked_child(self) -> None:
        """In a forked child: places are numbered anew, and the parent's findings are the parent's."""
        self.memory.clear()
        self.shared_memory.clear()
        self.shadows = ShadowBuffers()
        self.findings.clear()
        self._not_executed.clear()
        self._names.clear()
        self.recorder.end_callbacks.append(self.report_not_executed)

    def exclusion_reason(self, func: Any) -> str:
        """Returns why an operator is not executed twice, or "" if it is."""
        found = self._reasons.get(func)
        if found is None:
            found = self._reasons[func] = schema_exclusion_reason(func)
        return found

    def in_compiled_region(self) -> bool:
        """True while this thread executes a compiled region."""
        return bool(getattr(self.local, "region_depth", 0))

    @contextmanager
    def enter_compiled_region(self) -> Iterator[None]:
        """For the execution of a compiled region: the region is executed twice as a whole, not its parts."""
        self.local.region_depth = getattr(self.local, "region_depth", 0) + 1
        try:
            yield
        finally:
            self.local.region_depth -= 1

    def is_only_thread_using_operators(self) -> bool:
        """True if no other living thread has used operators: generators can then be set back for a moment."""
        return all(
            thread.ident not in self._names or thread is threading.current_thread() for thread in threading.enumerate()
        )

    def note_shared_memory(self, tensor: Any, how: str, location_id: int) -> None:
        """From now on something other than torch can write to a tensor's memory."""
        if not is_readable(tensor) or not tensor.numel():
            return
        storage = tensor.untyped_storage()
        record = self.memory.find_or_add_record(storage, location_id)
        record.shared, record.how = location_id, how
        self.shadows.drop(storage)  # what they write, its shadow would never learn
        self.shared_memory.watch_shared_memory(record)

    def execution_count(self, operator: WatchedOperator) -> int:
        """Executions of an operator in all: more where the order of threads may decide how sums are added."""
        return self.executions * (2 if any(part in operator.name for part in UNORDERED) else 1)

    def count_not_executed(self, reason: str) -> None:
        self._not_executed[reason] = self._not_executed.get(reason, 0) + 1

    def report_not_executed(self) -> None:
        """At the end of the process: report what was not executed twice, and why."""
        for reason, times in self._not_executed.items():
            self.findings.count_and_emit_at_powers_of_two(
                DoubleFinding(UNSEEN, how=reason, times=times), reason, 0, f.HOST
            )
        self._not_executed.clear()

    def count_pause_if_allowed(self, location_id: int) -> bool:
        """True if an operator may still wait here for other threads: limited in all, and for each place."""
        if threading.active_count() < 2 or sum(self._pauses.values()) >= MOST_PAUSES:
            return False
        self._pauses[location_id] = self._pauses.get(location_id, 0) + 1
        return self._pauses[location_id] <= PAUSES_AT_A_PLACE

    def note_role_of_current_thread(self, state: ThreadState) -> None:
        """Note that a thread uses operators, and its role."""
        ident = threading.get_ident()
        if ident not in self._names:
            self._names[ident] = state.role
            self._roles[state.number] = state.role

    def role_of_thread(self, thread_number: int) -> str:
        """The role of the thread with this number; "" if it is not known."""
        return self._roles.get(thread_number, "")


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
        flatten_to_tensors_and_stable_values(args, _Tensor, self.tensors, self.others)
        flatten_to_tensors_and_stable_values(kwargs.values(), _Tensor, self.tensors, self.others)
        self.written = [t for t in operator.flatten_written_arguments(args, kwargs) if isinstance(t, _Tensor)]
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
            if not runs_no_python_dispatch(tensor):
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

    def prepare_second_execution_or_explain(self, doubling: Doubling) -> str:
        """Copy what the operator will overwrite. Returns why the call cannot be executed twice, or ""."""
        if self.operator.random:
            self.draws = execution.GeneratorSnapshot(self.func, self.args, self.kwargs, self.tensors)
            if not (self.draws.given or doubling.is_only_thread_using_operators()):
                return "random operators while other threads run"
        for tensor in self.tensors:
            shadow = doubling.shadows.find_shadow_or_drop_outdated(tensor)
            if shadow is not None and not tolerates_arbitrary_values(tensor):
                doubling.shadows.drop(tensor.untyped_storage())
            elif shadow is not None:
                self.with_shadow.append((tensor, shadow))
        shadowed = {id(tensor) for tensor, _ in self.with_shadow}
        plain = [tensor for tensor in self.tensors if id(tensor) not in shadowed]
        if execution.writes_only_as_declared(self.func):
            changing = {storage_key(tensor) for tensor in self.written}
            self.copies_before = copy_tensors_by_id_preserving_aliasing(t for t in plain if storage_key(t) in changing)
        else:
            self.copies_before = copy_tensors_by_id_preserving_aliasing(plain)
        if shadowed and not self.operator.overwrites and not self.only_moves_elements:
            self.held_before = {id(t): t.clone() for t in self.written if id(t) in shadowed}
        return ""

    def drop_digests_of_written(self, memory: MemoryRegistry) -> None:
        """Forget the values of the arguments it writes into: how much it wrote before it failed is unknown."""
        for tensor in filter(d.is_readable, self.written):
            memory.note_write_end(tensor, self, None)

    def make_replacement_tensors_by_id(self, read_from_shadows: bool) -> dict[int, Any]:
        """Tensors for one more execution, by the `id` of those they stand for."""
        again = copy_tensors_by_id_preserving_aliasing(self.copies_before.values())
        others = {key: again[id(copy)] for key, copy in self.copies_before.items()}
        if read_from_shadows:
            others.update({id(tensor): view_in_shadow(tensor, shadow) for tensor, shadow in self.with_shadow})
        return others

    def collect_results(self, out: Any) -> list[Any]:
        """The results of the program's execution: the written arguments, then the other tensors."""
        outs = collect_tensors(out)
        done = {id(tensor) for tensor in self.written}
        self._output_positions = [
            at for at, tensor in enumerate(outs) if id(tensor) not in done and at != self.operator.scratch_output
        ]
        return [*self.written, *(outs[at] for at in self._output_positions)]

    def execute(self, state: ThreadState, malloc_fill_byte: int, read_from_shadows: bool = True) -> list[Any]:
        """One more execution: the results in the order of `collect_results`. Raises what the operator raises."""
        others = self.make_replacement_tensors_by_id(read_from_shadows)
        out = execution.execute_again(self.func, self.args, self.kwargs, others, self.draws, state, malloc_fill_byte)
        outs = collect_tensors(out)
        written = [others.get(id(tensor), tensor) for tensor in self.written]
        return [*written, *(outs[at] for at in self._output_positions)]


def collect_tensors(out: Any) -> list[Any]:
    tensors: list[Any] = []
    flatten_to_tensors_and_stable_values((out,), _Tensor, tensors, [])
    return tensors


def storage_key(tensor: Any) -> int:
    """A number that tensors on the same memory share; for others one of their own."""
    return int(tensor.untyped_storage()._cdata) if d.is_readable(tensor) else -id(tensor)


def runs_no_python_dispatch(tensor: Any) -> bool:
    """True where no Python code of the tensor's own runs when an operator meets it."""
    return not d.overrides_torch_dispatch(tensor) and not torch._is_functional_tensor(tensor)


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
        if any(not runs_no_python_dispatch(tensor) or not tensor.is_cpu for tensor in self.tensors):
            doubling.count_not_executed("compiled regions that do not run on the CPU alone")
        elif not doubling.is_only_thread_using_operators():
            doubling.count_not_executed("compiled regions while other threads run")
        else:
            self.copies = copy_tensors_by_id_preserving_aliasing(self.tensors)
        for tensor in filter(d.is_readable, self.tensors):  # it writes where no operator is seen
            doubling.shadows.drop(tensor.untyped_storage())

    def execute_again_and_report_difference(self, compiled: Any, out: Any) -> None:
        """After the program's own execution: once more, with the copies."""
        doubling, state = self.doubling, self.state
        for tensor in filter(d.is_readable, self.tensors):
            doubling.memory.drop_known_digests(tensor)
        if self.copies is None:
            return
        firsts = [*self.tensors, *collect_tensors(out)]
        values = digest_each(firsts)
        again = substitute_tensors(self.inputs, self.copies)
        copies = [self.copies[id(tensor)] for tensor in self.tensors]
        now = torch.get_rng_state()
        torch.set_rng_state(self.draws)
        try:
            with execution.filling_malloc_with_if_possible(execution.OTHER), execution.without_warnings():
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
                program_and_other_result = (tensor, second) if d.is_readable(tensor) else ()
                finding = DoubleFinding(found.KERNEL, runs=2, different=1)
                doubling.findings.count_and_emit_at_powers_of_two(
                    finding, NAME, location_id, flags & f.PHASE_MASK, program_and_other_result
                )
                return

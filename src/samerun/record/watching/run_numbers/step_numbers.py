"""What a run computes, as numbers: losses, gradients, parameters and buffers of each optimizer step, and operators.

Digests say whether two runs are the same; how far apart they are, and whether float64 brings them together, needs
numbers. One file for each process: records, each one line of JSON and then float64 values. Imports torch.
"""

from __future__ import annotations

import json
import os
import threading
import weakref
from contextlib import contextmanager, nullcontext
from typing import Any, NamedTuple

import torch

from samerun.record.config import (
    CALLS_KEPT,
    COUNTED_SO_FAR,
    INPUT_OF,
    OVERWRITTEN,
    RESULT_OF,
    NumbersRequest,
    numbers_file_name,
)
from samerun.record.digests.digest import is_readable
from samerun.record.digests.torch_guards import no_torch_function, outside_transforms
from samerun.record.trace import format as f
from samerun.record.watching import stack_frames
from samerun.record.watching.recorder import Recorder
from samerun.record.watching.run_numbers.flat_shards import FlatRanges, find_flat_ranges, take_numbers_of_shard_or_whole
from samerun.record.watching.run_numbers.float64_mode import Draw, Float64Mode
from samerun.record.watching.run_numbers.hand_written_steps import HandWrittenOptimizer, HandWrittenSteps
from samerun.record.watching.run_numbers.model_changes import MemoryFormatSwitch, disturb_parameters
from samerun.record.watching.run_numbers.model_values import ModelValues, list_named_parameters
from samerun.record.watching.run_numbers.operator_summaries import OperatorSummaries
from samerun.record.watching.run_numbers.shard_numbers import TakenNumbers
from samerun.record.watching.run_numbers.tensor_numbers import (
    STEPS_KEPT,
    digest_generator_states,
    is_floating_or_complex,
    is_kept_with_tenfold_thinning,
    name_class_without_wrappers,
    name_dtype,
    read_optimizer_group_numbers_as_hex,
    read_scheduler_settings,
    summarise_as_count_and_four_sums,
    take_all_or_sampled_numbers,
)
from samerun.record.watching.run_numbers.value_producers import OVERWRITING, fills_its_memory
from samerun.record.watching.stack_frames import OperatorSite
from samerun.record.watching.torch_internals import (
    RECOMPUTING_MODULES,
    exclude_from_compilation,
    is_recomputing,
    location_of_running_autograd_node,
    record_new_autograd_node_locations,
)
from samerun.record.watching.watched_operator import WatchedOperator, flatten_to_tensors_and_stable_values

MOST_OPERATORS = 60_000


class Item(NamedTuple):
    """One value of a record: what it is, the dtype that the program has it in, and its numbers."""

    kind: str
    name: str
    dtype: str
    taken: TakenNumbers


class StepValueRecorder:
    """Writes the numbers of one process, and makes it compute as it is asked to."""

    def __init__(self, recorder: Recorder, request: NumbersRequest) -> None:
        self.recorder, self.request = recorder, request
        self.switches = dict(request.switches)
        self.use_counts: dict[str, int] = {}
        """How often the program used what a switch acts on."""
        self.lines: dict[str, dict[str, int]] = {}
        """Lines (file:line) of calls that explain a difference, and how often each was run: since the last step, or, of
        the kinds in COUNTED_SO_FAR, since the program began."""
        self.narrow_operators: dict[str, int] = {}
        self._schedulers: list[tuple[Any, str]] = []
        """Learning-rate schedulers (weakly), and the lines that made them."""
        self._optimizers: dict[int, dict[str, Any]] = {}
        """By id, the line that made each optimizer, and its settings then."""
        self.losses: list[float] = []
        self.models = ModelValues(recorder)
        self._hand_written = HandWrittenSteps(recorder, self.models)
        self._gradients: dict[int, TakenNumbers] = {}
        self._settings: dict[str, str] = {}
        self._step_line = ""
        self._flat_ranges: FlatRanges = {}
        self.calls = 0
        self._operators: dict[Any, WatchedOperator] = {}
        self._summaries = OperatorSummaries()
        self._disturbed_roots: set[int] = set()
        self._memory_format = MemoryFormatSwitch(self.use_counts)
        self._local = threading.local()
        """`mode`: that of the thread."""
        self._file: Any = None
        self._is_forked_child = self._has_been_rank = False
        exclude_from_compilation(Float64Mode.__torch_dispatch__)
        recorder.fork_callbacks.append(self._begin_own_record_in_forked_child)
        recorder.end_callbacks.append(self.write_end)

    def _begin_own_record_in_forked_child(self) -> None:
        self._file, self._is_forked_child = None, True
        self._hand_written = HandWrittenSteps(self.recorder, self.models)  # what the parent last saw is no step here
        self.recorder.end_callbacks.append(self.write_end)

    # --- the mode ------------------------------------------------------------------------------------
    def enter_float64_or_summary_mode(self) -> None:
        """In this thread: compute in float64, or summarise operators; nothing where neither is asked for."""
        if self.request.float64 or self.request.operator_steps[1] >= 1:
            mode = Float64Mode(self.request.float64, self._operators, self.narrow_operators)
            if self.request.operator_steps[1] >= 1:
                mode.is_summarising = lambda: self.recorder.step < self.request.operator_steps[1]
                mode.summarise = self.summarise_operator
                mode.follow_views = self._summaries.producers.note_further_views
                mode.note_overwriting = lambda: self.count_user_line(OVERWRITTEN, stack_frames.find_user_line())
            mode.__enter__()  # type: ignore[no-untyped-call]
            self._local.mode = mode

    @contextmanager
    def keep_dtypes_in_generated_code(self) -> Any:
        """For code that inductor generated: its operators compute in the dtypes that it has for them."""
        mode = getattr(self._local, "mode", None)
        if mode is None:
            yield
            return
        mode.region_depth += 1
        try:
            yield
        finally:
            mode.region_depth -= 1

    def summarise_operator(
        self, operator: WatchedOperator, operands: list[Any], results: list[Any], drew: Draw
    ) -> None:
        """Note what an operator made of what: sums over its results, and which earlier operators made its operands."""
        state = self.recorder.thread
        first, last = self.request.operator_steps
        if state.inside_samerun or not first <= self.recorder.step + 1 <= last:
            return
        if len(self._summaries.rows) >= MOST_OPERATORS or self.recorder.stopped:
            return
        if operator.silent and stack_frames.is_called_from_module("torch.nn.parallel", "torch.distributed"):
            return  # memory for gradients, in which nothing stands yet
        try:
            with self._inside_samerun():
                site = self._find_operator_phase_and_location()
                if operator.name.startswith(OVERWRITING) and results and fills_its_memory(results[0]):
                    exchanged = self._summaries.is_result_of_collective(results[0])
                    operands = [t for t in operands if t is not results[0] or exchanged]
                self._summaries.add(operator.name, site, operands, results, drew, operator.silent)
        except Exception as error:
            self.recorder.stop(f"samerun could not summarise {operator.name}: {error!r}")

    def _find_operator_phase_and_location(self) -> OperatorSite:
        state = self.recorder.thread
        writer = self.recorder.writer or self.recorder.open_writer()
        in_backward = torch._C._current_graph_task_id() != -1
        recomputed = in_backward and is_recomputing()
        lines = stack_frames.list_user_lines(RECOMPUTING_MODULES if recomputed else ())
        if in_backward and (not recomputed or not lines):  # a layer of torch's is recomputed where it was called
            known = location_of_running_autograd_node(state)
            if known:
                return OperatorSite(f.BACKWARD, known, (), recomputed, lines[:1])
        file, line = lines[0] if lines else ("", 0)
        location_id = writer.intern_location(file, line, state.module) if writer is not None and line else 0
        if in_backward:
            if recomputed:  # the nodes that a recomputed part is differentiated by may be new
                record_new_autograd_node_locations(state, location_id)
            return OperatorSite(f.BACKWARD, location_id, lines[1:], recomputed)
        if state.phase == f.OPTIMIZER and state.step_location_id and not torch.is_grad_enabled():
            # The line of an optimizer of the program's own; where the optimizer is torch's, that of the step.
            return OperatorSite(f.OPTIMIZER, location_id or state.step_location_id, lines[1:], False)
        record_new_autograd_node_locations(state, location_id)
        phase = f.FORWARD if state.outer_modules or torch.is_grad_enabled() else f.BETWEEN
        return OperatorSite(phase, location_id, lines[1:], False)

    def add_model_values(self, input_or_result: str, model: Any, values: Any) -> None:
        """Summarise each tensor that goes into a model or comes out, as an operator: another batch shows as that."""
        first, last = self.request.operator_steps
        if not first <= self.recorder.step + 1 <= last or len(self._summaries.rows) >= MOST_OPERATORS:
            return
        tensors: list[Any] = []
        flatten_to_tensors_and_stable_values((values,), torch.Tensor, tensors, [])
        site = self._find_operator_phase_and_location()
        for tensor in tensors:
            self._summaries.add(input_or_result + type(model).__name__, site, [tensor], [tensor], "none")

    # --- models --------------------------------------------------------------------------------------
    def call_root_model_with_switches(self, call: Any, model: Any, args: Any, kwargs: Any) -> Any:
        """Call a model of the program, with what the switches change about it; note what an evaluation gives."""
        state = self.recorder.thread
        if self.recorder.stopped or state.inside_samerun:
            return call(model, *args, **kwargs)
        if self.request.disturbance and id(model) not in self._disturbed_roots:
            self._disturbed_roots.add(id(model))
            self._disturb([p for _, p in list_named_parameters(model)])
        with self._inside_samerun():
            self._record_hand_written_step_if_made(model)
            if self.switches.get("memory-format") == "other":
                args, kwargs = self._memory_format.turn_weights_and_images(model, args, kwargs)
            self.add_model_values(INPUT_OF, model, (args, kwargs))
        with self._switched_context(args, kwargs):
            out = call(model, *args, **kwargs)
        with self._inside_samerun():
            if not torch.is_grad_enabled() or torch.is_inference_mode_enabled():
                self.calls += 1
                self.use_counts["evaluation"] = self.calls
                self.add_model_values(RESULT_OF, model, out)
                if is_kept_with_tenfold_thinning(self.calls, CALLS_KEPT):
                    self._write_call(model, out)
        return out

    @contextmanager
    def _inside_samerun(self) -> Any:
        self.recorder.thread.inside_samerun += 1
        try:
            yield
        finally:
            self.recorder.thread.inside_samerun -= 1

    def _switched_context(self, args: Any, kwargs: Any) -> Any:
        if self.switches.get("autocast") == "on":
            tensors: list[Any] = []
            flatten_to_tensors_and_stable_values((args, kwargs), torch.Tensor, tensors, [])
            device = tensors[0].device.type if tensors else "cpu"
            return torch.autocast(device, dtype=torch.bfloat16)
        if self.switches.get("inference-mode") == "other" and not torch.is_grad_enabled():
            return torch.inference_mode(not torch.is_inference_mode_enabled())
        return nullcontext()

    # --- steps ---------------------------------------------------------------------------------------
    def count_user_line(self, kind: str, user_line: stack_frames.UserLine) -> None:
        where = self.lines.setdefault(kind, {})
        key = f"{user_line.file}:{user_line.line}"
        where[key] = where.get(key, 0) + 1

    def note_optimizer(self, optimizer: Any, user_line: stack_frames.UserLine) -> None:
        settings = read_optimizer_group_numbers_as_hex(optimizer)
        self._hand_written.keep_until_next_call(None)
        self._optimizers[id(optimizer)] = {"line": f"{user_line.file}:{user_line.line}", "settings": settings}

    def note_scheduler(self, scheduler: Any, user_line: stack_frames.UserLine) -> None:
        self._schedulers.append((weakref.ref(scheduler), f"{user_line.file}:{user_line.line}"))

    def _disturb(self, parameters: list[Any]) -> None:
        with outside_transforms():
            disturb_parameters(parameters, self.request.disturbance, self.recorder.step)

    def before_step(self, optimizer: Any) -> None:
        """Right before an optimizer's step, when the gradients are whole."""
        held = self.models.list_trained_parameters(optimizer)
        self._flat_ranges = find_flat_ranges(self.models.list_called_models())
        # A rank that holds nothing of a parameter has no gradient of it: its share is zero.
        gradients = [(p, p if p.grad is None and p.requires_grad and id(p) in self._flat_ranges and not p.numel()
                      else p.grad) for p in held]  # fmt: skip
        self._gradients = {
            id(p): taken for p, gradient in gradients if gradient is not None
            and (taken := take_numbers_of_shard_or_whole(p, gradient, self._flat_ranges)) is not None
        }  # fmt: skip
        self._settings = read_optimizer_group_numbers_as_hex(optimizer)
        file, line, _ = stack_frames.find_user_line()
        self._step_line = f"{file}:{line}"

    def after_step(self, optimizer: Any) -> None:
        """Right after it."""
        number = self.recorder.step + 1
        held = self.models.list_trained_parameters(optimizer)
        if is_kept_with_tenfold_thinning(number, STEPS_KEPT):
            names, buffers = self.models.name_parameters_and_buffers(held, number)
            items = [Item("loss", "", "float64", TakenNumbers([sum(self.losses)] if self.losses else [], False))]
            unread = []
            for p in held:
                dtype = name_dtype(p)
                if id(p) in self._gradients:
                    items.append(Item("gradient", names[id(p)], dtype, self._gradients[id(p)]))
                taken = take_numbers_of_shard_or_whole(p, p, self._flat_ranges)
                if taken is not None and is_floating_or_complex(p):
                    items.append(Item("parameter", names[id(p)], dtype, taken))
                elif taken is None:
                    unread.append(names[id(p)])
            items += self._make_items_of_untrained(buffers)
            tied, given = self.models.list_tied_names_and_assigning_lines(names) if number == 1 else ({}, {})
            self._write_record(
                {
                    "kind": "step", "number": number, "optimizer": type(optimizer).__name__,
                    "settings": self._settings, "line": self._step_line, "backwards": len(self.losses),
                    "lines": self.lines, "unread": unread, "tied": tied, "given": given,
                    "made": self._optimizers.get(id(optimizer), {}),
                    "schedulers": {where: read_scheduler_settings(scheduler) for made, where in self._schedulers
                                   if (scheduler := made()) is not None},
                    "random": digest_generator_states(),
                    "shapes": {names[id(p)]: list(p.shape) for p in held if number == 1},
                    "untrained": sorted({*names.values()} - {names[id(p)] for p in held}) if number == 1 else [],
                },
                items,
            )  # fmt: skip
        self._write_operators(number, held if isinstance(optimizer, HandWrittenOptimizer) else None)
        self.losses.clear()
        self.lines = {kind: lines for kind, lines in self.lines.items() if kind in COUNTED_SO_FAR}
        if self.request.disturbance:
            self._disturb(held)

    def _record_hand_written_step_if_made(self, called_model: Any = None) -> None:
        self._has_been_rank = self._has_been_rank or (
            torch.distributed.is_available() and torch.distributed.is_initialized()
        )
        if self._optimizers or (self._is_forked_child and not self._has_been_rank):
            return  # a child that is no rank may see what its parent trains
        at_end = called_model is None
        try:
            with no_torch_function(), outside_transforms():
                step = self._hand_written.find_step(at_end=at_end)
                self._hand_written.keep_until_next_call(called_model)
                if step is not None:
                    self.after_step(step)
                    if self.request.disturbance:
                        self._hand_written.sample_again()
                    self._hand_written.emit_step(step, at_end=at_end)
        except Exception as error:
            self.recorder.stop(f"samerun's recorder failed at a step that no optimizer made: {error!r}")

    def _make_items_of_untrained(self, values: dict[str, Any]) -> list[Item]:
        return [Item("buffer", name, name_dtype(value), taken) for name, value in values.items()
                if (taken := take_numbers_of_shard_or_whole(value, value, self._flat_ranges)) is not None]  # fmt: skip

    def _write_call(self, model: Any, out: Any) -> None:
        tensors: list[Any] = []
        flatten_to_tensors_and_stable_values((out,), torch.Tensor, tensors, [])
        items = [Item("output", str(at), name_dtype(t), TakenNumbers(take_all_or_sampled_numbers(t), False))
                 for at, t in enumerate(tensors) if is_readable(t)]  # fmt: skip
        file, line, _ = stack_frames.find_user_line()
        head = {"kind": "call", "number": self.calls, "step": self.recorder.step, "training": bool(model.training),
                "model": name_class_without_wrappers(model), "line": f"{file}:{line}",
                "sums": [summarise_as_count_and_four_sums(t) for t in tensors if is_readable(t)]}  # fmt: skip
        self._write_record(head, items)

    def _write_operators(self, number: int, written: list[Any] | None = None) -> None:
        """written: the parameters of a step that is only found when a model is called next. What follows on it belongs
        to the next step, as after the steps of an optimizer.
        """
        count = len(self._summaries.rows) if written is None else self._summaries.count_up_to_writing(written)
        if count:
            head, sums = self._summaries.take(count)
            item = Item("summary", "", "float64", TakenNumbers(sums, False))
            self._write_record({"kind": "operators", "number": number, **head}, [item])
        if self._summaries.rows and number >= self.request.operator_steps[1]:
            self._summaries.take(len(self._summaries.rows))

    def write_end(self) -> None:
        with self._inside_samerun():
            self._record_hand_written_step_if_made()
        self._write_operators(self.recorder.step + 1)
        self._write_values_behind_last_step()
        with self._inside_samerun():
            models = self.models.digest_values_by_model_class()
        head = {"kind": "end", "uses": self.use_counts, "narrow": self.narrow_operators, "lines": self.lines,
                "models": models}  # fmt: skip
        self._write_record(head, [])

    def _write_values_behind_last_step(self) -> None:
        """What was written into models after the last step (averaged weights), as a step that has no parameters."""
        last, number = self.recorder.config.max_steps, self.recorder.step + 1
        if number == 1 or self._is_forked_child or (last is not None and number > last):
            return  # a run that is cut off ends somewhere else
        with self._inside_samerun():
            _, values = self.models.name_parameters_and_buffers([], number)
            head = {"kind": "step", "number": number, "backwards": 0, "lines": self.lines}
            self._write_record(head, self._make_items_of_untrained(values))

    def _write_record(self, head: dict[str, Any], items: list[Item]) -> None:
        if self._file is None:
            self.recorder.open_writer()
            path = os.path.join(self.recorder.config.folder, numbers_file_name(self.recorder.process_role_path()))
            self._file = open(path, "wb")  # noqa: SIM115  # as long as the process
        head["items"] = [[each.kind, each.name, each.dtype, len(each.taken.values)] for each in items]
        head["shares"] = [at for at, each in enumerate(items) if each.taken.is_share]
        values = [value for each in items for value in each.taken.values]
        data = torch.tensor(values, dtype=torch.float64).numpy().tobytes() if values else b""
        self._file.write(json.dumps({**head, "bytes": len(data)}).encode() + b"\n" + data)
        self._file.flush()

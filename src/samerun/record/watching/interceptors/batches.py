"""Models that are called without gradients: is a sample computed the same in other batches?

For the variation `batch`. The control run writes one event for each operator of a call that can be examined, and one
for the call itself. The varied run examines the call and writes the same events; what was found out makes some of
their digests other ones, and stands in their text.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from xxhash import xxh3_128_digest

from samerun.record.trace import format as f
from samerun.record.watching import stack_frames
from samerun.record.watching.interceptor import Interceptor
from samerun.record.watching.recorder import Recorder

MOST_CALLS = 4
"""So many calls of a process are examined, each model once for each kind of arguments."""
SECONDS = 20.0
"""For the sizes of one call."""
MODEL_CALL = "model"
"""The name of the event of a whole call."""


def examine_module_calls_if_configured(recorder: Recorder, torch: Any) -> None:
    """Wrap the one method through which every module is called, around what `training` puts there."""
    if recorder.config.examine_batches is None:
        return
    original = torch.nn.Module._call_impl
    examiner = ModuleCallExaminer(recorder, torch, original)

    def _call_impl(self: Any, *args: Any, **kwargs: Any) -> Any:
        if examiner.is_to_be_examined(self):
            examiner.examine(self, args, kwargs)
        return original(self, *args, **kwargs)

    _call_impl.__qualname__ = original.__qualname__
    torch.nn.Module._call_impl = stack_frames.hide_frame_from_warnings(_call_impl)


class ModuleCallExaminer:
    """Examines the outermost calls of modules in the main thread."""

    def __init__(self, recorder: Recorder, torch: Any, call: Callable[..., Any]) -> None:
        self.recorder, self.torch, self.call = recorder, torch, call
        self.seen: set[Any] = set()
        self.count = 0

    def is_to_be_examined(self, module: Any) -> bool:
        state = self.recorder.thread
        return (
            not state.outer_modules
            and not state.inside_samerun
            and state.number == 0
            and not self.recorder.stopped
            and self.count < MOST_CALLS
            and not (self.torch.is_grad_enabled() and module.training)
            and not self.torch.compiler.is_compiling()
        )

    def examine(self, module: Any, args: Any, kwargs: Any) -> None:
        """Write the events of one call, unless one like it was examined before or it cannot be."""
        state, location = self.recorder.thread, stack_frames.find_user_line()
        state.inside_samerun += 1
        try:
            key = (id(module), str(self.torch.utils._pytree.tree_structure((args, kwargs))))
            if key in self.seen:
                return
            self.seen.add(key)
            self._emit_operators_with_batch_dependences(module, (args, kwargs), location)
        finally:
            state.inside_samerun -= 1

    def _emit_operators_with_batch_dependences(
        self, module: Any, arguments: Any, location: stack_frames.UserLine
    ) -> None:
        from samerun.record.watching.batch_invariance.experiments import (
            SIZES,
            examine_batch_invariance,
            list_operators_if_examinable,
        )

        operators = list_operators_if_examinable(module, arguments)
        if operators is None:
            return
        self.count += 1
        found: dict[Any, str] = {}
        whole = ""
        if self.recorder.config.examine_batches == "varied":
            try:
                report = examine_batch_invariance(module, arguments, SIZES, is_copied=False, seconds=SECONDS)
            except Exception as error:  # the model takes no other batch of this kind
                whole = json.dumps({"error": f"{type(error).__name__}: {error}"})
            else:
                for one in report.dependences:
                    found.setdefault((one.operator, one.line, one.module), json.dumps(asdict(one)))
                if not report.invariant and not any(found.get(each.row_key) for each in operators):
                    first = report.dependences[:1]
                    whole = json.dumps(asdict(first[0]) if first else {"experiments": str(report)})
        writer = self.recorder.writer or self.recorder.open_writer()
        if writer is None:
            return
        for each in operators:
            at = writer.intern_location(each.file, each.line, each.module) if each.line else 0
            self._emit(each.operator, at, found.get(each.row_key, ""))
        self._emit(MODEL_CALL, writer.intern_location(location.file, location.line, "") if location.line else 0, whole)

    def _emit(self, name: str, location_id: int, text: str) -> None:
        writer = self.recorder.writer
        if writer is not None:
            self.recorder.emit(
                f.ROWS, name=name, location_id=location_id, inputs=self.count, phase=f.FORWARD,
                aux=writer.intern_string(text), outputs=xxh3_128_digest(text.encode()),
            )  # fmt: skip


EXAMINED_CALLS = Interceptor("batches", "torch", examine_module_calls_if_configured)

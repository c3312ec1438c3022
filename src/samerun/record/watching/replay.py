"""An experiment: a resumed run is given the data that the run in one go had from the same step on. Imports torch.

What the one run takes in at a place is kept, step by step; the other is given it there. A place is the hand-over of
a DataLoader's batch, or an operator at a line.
"""

from __future__ import annotations

import os
from typing import Any

import torch

from samerun.record.config import DataReplay
from samerun.record.watching.recorder import Recorder
from samerun.record.watching.training_states import NUMPY, PYTHON, TORCH, NonParameterStates

LIMIT_BYTES = 1 << 30
"""More is not kept. The experiment is then not made."""
TOO_LARGE, GIVEN = "too-large", "given"
"""Files that say how it went."""


class Replayer:
    """Keeps what passes by, or puts what was kept into its place."""

    def __init__(self, recorder: Recorder, config: DataReplay) -> None:
        self.recorder, self.config = recorder, config
        self.objects = NonParameterStates(torch, [])
        self.kept_in_step: list[Any] = []
        self.count = self.bytes = 0
        self.location_ids: dict[int, bool] = {}
        self.loaded_step: tuple[int, list[Any]] = -1, []
        self.save, self.load = torch.save, torch.load
        recorder.step_callbacks.append(self.save_buffered_tensors_and_reset)

    @property
    def steps_since_interruption(self) -> int:
        """Of the steps behind the interruption, from 0; before them it is negative."""
        return self.recorder.step - self.config.shift

    def file_path(self, name: str) -> str:
        return os.path.join(self.config.folder, name)

    # --- what passes by ------------------------------------------------------------------------------
    def save_or_replay_batch(self, batch: Any) -> Any:
        """A batch that a DataLoader hands over."""
        if self.config.source is not None:
            return batch
        return replace_batch_tensors(batch, self.save_or_replay_tensors(collect_batch_tensors(batch)))

    def save_or_replay_output_of_source(self, operator: str, location_id: int, out: Any) -> Any:
        """What an operator gave. Only single tensors that are not written in place are replaced."""
        source = self.config.source
        if source is None or operator != source[2] or type(out) is not torch.Tensor:
            return out
        is_source = self.location_ids.get(location_id)
        if is_source is None:
            writer = self.recorder.writer
            is_source = self.location_ids[location_id] = writer is not None and writer.is_location_on_line(
                location_id, *source[:2]
            )
        if not is_source:
            return out
        self.recorder.thread.inside_samerun += 1
        try:
            return self.save_or_replay_tensors([out])[0]
        finally:
            self.recorder.thread.inside_samerun -= 1

    def save_or_replay_tensors(self, tensors: list[Any]) -> list[Any]:
        if self.steps_since_interruption < 0 or self.recorder.thread.number != 0:
            return tensors
        if self.config.keep:
            self.buffer_tensors_to_save(tensors)
            return tensors
        number = self.count - (self.config.skip if self.steps_since_interruption == 0 else 0)
        self.count += 1
        kept = self.load_saved_data_of_step()
        if not 0 <= number < len(kept) or len(kept[number]["tensors"]) != len(tensors):
            return tensors
        if self.config.streams:
            self.objects.try_restore_and_list_restored_parts(kept[number]["streams"], (TORCH, NUMPY, PYTHON))
        if not os.path.exists(self.file_path(GIVEN)):
            open(self.file_path(GIVEN), "wb").close()
        return [new.to(old.device) for new, old in zip(kept[number]["tensors"], tensors, strict=True)]

    def load_saved_data_of_step(self) -> list[Any]:
        """What the other run took in during this step; nothing behind its end."""
        if self.loaded_step[0] != self.steps_since_interruption:
            path = self.file_path(str(self.steps_since_interruption))
            self.loaded_step = (
                self.steps_since_interruption,
                self.load(path, weights_only=True) if os.path.exists(path) else [],
            )
        return self.loaded_step[1]

    def buffer_tensors_to_save(self, tensors: list[Any]) -> None:
        self.bytes += sum(t.numel() * t.element_size() for t in tensors)
        if self.bytes > LIMIT_BYTES:
            open(self.file_path(TOO_LARGE), "wb").close()
            return
        streams = {
            part: s
            for part, s in self.objects.read_training_states_skipping_unreadable().items()
            if part in (TORCH, NUMPY, PYTHON)
        }
        self.kept_in_step.append({"tensors": [t.detach().cpu().clone() for t in tensors], "streams": streams})

    def save_buffered_tensors_and_reset(self) -> None:
        if self.config.keep and self.steps_since_interruption > 0:
            self.recorder.thread.inside_samerun += 1
            try:
                self.save(self.kept_in_step, self.file_path(str(self.steps_since_interruption - 1)))
            finally:
                self.recorder.thread.inside_samerun -= 1
        self.kept_in_step, self.count = [], 0


def collect_batch_tensors(batch: Any) -> list[Any]:
    """The tensors of a batch, in order."""
    if isinstance(batch, torch.Tensor):
        return [batch]
    inner = batch.values() if isinstance(batch, dict) else batch if isinstance(batch, (list, tuple)) else ()
    return [tensor for each in inner for tensor in collect_batch_tensors(each)]


def replace_batch_tensors(batch: Any, tensors: list[Any]) -> Any:
    """The same batch with other tensors in the place of its own."""
    replacements = iter(tensors)

    def build(batch: Any) -> Any:
        if isinstance(batch, torch.Tensor):
            return next(replacements)
        if isinstance(batch, dict):
            built = {key: build(each) for key, each in batch.items()}
            return built if type(batch) is dict else type(batch)(built)
        if isinstance(batch, tuple) and hasattr(batch, "_fields"):
            return type(batch)(*(build(each) for each in batch))
        return type(batch)(build(each) for each in batch) if isinstance(batch, (list, tuple)) else batch

    return build(batch)

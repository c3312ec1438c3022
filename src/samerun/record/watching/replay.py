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
from samerun.record.watching.training_states import NUMPY, PYTHON, TORCH, TrainingObjects

LIMIT_BYTES = 1 << 30
"""More is not kept. The experiment is then not made."""
TOO_LARGE, GIVEN = "too-large", "given"
"""Files that say how it went."""


class Replayer:
    """Keeps what passes by, or puts what was kept into its place."""

    def __init__(self, recorder: Recorder, config: DataReplay) -> None:
        self.recorder, self.config = recorder, config
        self.objects = TrainingObjects(torch, [])
        self.now: list[Any] = []
        self.count = self.bytes = 0
        self.places: dict[int, bool] = {}
        self.given: tuple[int, list[Any]] = -1, []
        self.save, self.load = torch.save, torch.load
        recorder.step_callbacks.append(self.step_ended)

    @property
    def step(self) -> int:
        """Of the steps behind the interruption, from 0; before them it is negative."""
        return self.recorder.step - self.config.shift

    def path(self, name: str) -> str:
        return os.path.join(self.config.folder, name)

    # --- what passes by ------------------------------------------------------------------------------
    def batch(self, value: Any) -> Any:
        """A batch that a DataLoader hands over."""
        if self.config.source is not None:
            return value
        return replace_tensors(value, self.keep_or_replace(batch_tensors(value)))

    def operator(self, name: str, place: int, out: Any) -> Any:
        """What an operator gave. Only single tensors that are not written in place are replaced."""
        wanted = self.config.source
        if wanted is None or name != wanted[2] or type(out) is not torch.Tensor:
            return out
        here = self.places.get(place)
        if here is None:
            writer = self.recorder.writer
            here = self.places[place] = writer is not None and writer.location_is_at(place, *wanted[:2])
        if not here:
            return out
        self.recorder.thread.inside_samerun += 1
        try:
            return self.keep_or_replace([out])[0]
        finally:
            self.recorder.thread.inside_samerun -= 1

    def keep_or_replace(self, tensors: list[Any]) -> list[Any]:
        if self.step < 0 or self.recorder.thread.number != 0:
            return tensors
        if self.config.keep:
            self.keep(tensors)
            return tensors
        number = self.count - (self.config.skip if self.step == 0 else 0)
        self.count += 1
        kept = self.kept_of_step()
        if not 0 <= number < len(kept) or len(kept[number]["tensors"]) != len(tensors):
            return tensors
        if self.config.streams:
            self.objects.put_back(kept[number]["streams"], (TORCH, NUMPY, PYTHON))
        if not os.path.exists(self.path(GIVEN)):
            open(self.path(GIVEN), "wb").close()
        return [new.to(old.device) for new, old in zip(kept[number]["tensors"], tensors, strict=True)]

    def kept_of_step(self) -> list[Any]:
        """What the other run took in during this step; nothing behind its end."""
        if self.given[0] != self.step:
            path = self.path(str(self.step))
            self.given = self.step, self.load(path, weights_only=True) if os.path.exists(path) else []
        return self.given[1]

    def keep(self, tensors: list[Any]) -> None:
        self.bytes += sum(t.numel() * t.element_size() for t in tensors)
        if self.bytes > LIMIT_BYTES:
            open(self.path(TOO_LARGE), "wb").close()
            return
        streams = {part: s for part, s in self.objects.states().items() if part in (TORCH, NUMPY, PYTHON)}
        self.now.append({"tensors": [t.detach().cpu().clone() for t in tensors], "streams": streams})

    def step_ended(self) -> None:
        if self.config.keep and self.step > 0:
            self.recorder.thread.inside_samerun += 1
            try:
                self.save(self.now, self.path(str(self.step - 1)))
            finally:
                self.recorder.thread.inside_samerun -= 1
        self.now, self.count = [], 0


def batch_tensors(value: Any) -> list[Any]:
    """The tensors of a batch, in order."""
    if isinstance(value, torch.Tensor):
        return [value]
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, (list, tuple)) else ()
    return [tensor for each in inner for tensor in batch_tensors(each)]


def replace_tensors(value: Any, tensors: list[Any]) -> Any:
    """The same batch with other tensors in the place of its own."""
    left = iter(tensors)

    def build(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return next(left)
        if isinstance(value, dict):
            built = {key: build(each) for key, each in value.items()}
            return built if type(value) is dict else type(value)(built)
        if isinstance(value, tuple) and hasattr(value, "_fields"):
            return type(value)(*(build(each) for each in value))
        return type(value)(build(each) for each in value) if isinstance(value, (list, tuple)) else value

    return build(value)

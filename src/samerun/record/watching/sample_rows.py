"""Follow each sample through the operators, whichever batch it came in. Imports torch.

If nothing is trained, what is computed of a sample should not depend on the other samples of its batch. So in a pass
over a `samerun.data.DataLoader` without gradients, the rows of every operator's results are hashed one after the other,
over all batches: a row is a sample. The same samples in smaller batches then give the same hashes.
"""

from __future__ import annotations

import weakref
from typing import Any

import torch
from xxhash import xxh3_128

from samerun.record.digests import digest as d
from samerun.record.trace import format as f
from samerun.record.watching import stack_frames
from samerun.record.watching.recorder import Recorder
from samerun.record.watching.replay import collect_batch_tensors

Key = tuple[int, str, int]
"""Place, operator, and the number of its result among those of the same place in the batch."""


class RowStream:
    """The rows of one result, batch after batch."""

    def __init__(self) -> None:
        self.hasher: Any = None
        self.batches = 0
        self.has_row_per_sample = True
        """Whether every result so far had a row for each sample."""

    def hash_rows(self, tensor: Any, sample_count: int) -> None:
        self.batches += 1
        if not d.is_readable(tensor) or tensor.dim() == 0 or tensor.shape[0] != sample_count:
            self.has_row_per_sample = False
        if not self.has_row_per_sample:
            return
        dense = tensor.detach().cpu().resolve_conj().resolve_neg().contiguous()
        seed = d.shape_seed(dense.dtype, dense.shape[1:])
        if self.hasher is None:
            self.hasher, self.seed = xxh3_128(seed=seed), seed
        self.has_row_per_sample = seed == self.seed
        if dense.nbytes:
            self.hasher.update(d.buffer_at_address(dense.data_ptr(), dense.nbytes))


class SampleRows:
    """Follows one pass at a time, in the main thread."""

    def __init__(self, recorder: Recorder, iterator_types: tuple[type, ...]) -> None:
        self.recorder, self.kinds = recorder, iterator_types
        self.iterator: Any = None
        """Weakly held: the one whose pass it is."""
        self.passes = 0
        self.rows = -1
        """Samples of the batch at hand; -1 outside a pass."""
        self.batches = 0
        self.streams: dict[Key, RowStream] = {}
        self.counts: dict[tuple[int, str], int] = {}

    def is_current_pass(self, iterator: Any) -> bool:
        return self.iterator is not None and self.iterator() is iterator

    def begin_batch_if_inference(self, iterator: Any, batch: Any) -> None:
        """A DataLoader hands over a batch."""
        if self.recorder.thread.number != 0:
            return
        if not isinstance(iterator, self.kinds) or torch.is_grad_enabled():
            self.rows = -1
            return
        if not self.is_current_pass(iterator):
            self.reset_data_loader_pass()
            self.iterator = weakref.ref(iterator)
        tensors = collect_batch_tensors(batch)
        self.rows = next((int(t.shape[0]) for t in tensors if t.dim()), -1)
        self.batches += 1
        self.counts.clear()
        file, line, _ = stack_frames.find_user_line()
        writer = self.recorder.writer or self.recorder.open_writer()
        if writer is not None and line:
            self.hash_rows_of_tensors(writer.intern_location(file, line, ""), "DataLoader", tensors)

    def add_operator_results_if_inference(self, location_id: int, name: str, tensors: list[Any]) -> None:
        """What an operator gave."""
        if self.rows >= 0 and not torch.is_grad_enabled():
            self.hash_rows_of_tensors(location_id, name, tensors)

    def hash_rows_of_tensors(self, location_id: int, name: str, tensors: list[Any]) -> None:
        for tensor in tensors:
            number = self.counts[location_id, name] = self.counts.get((location_id, name), 0) + 1
            self.streams.setdefault((location_id, name, number), RowStream()).hash_rows(tensor, self.rows)

    def emit_row_digests_and_end_pass(self) -> None:
        """The pass went to its end: one event for every result that had a row for each sample in every batch."""
        self.passes += 1
        for (location_id, name, number), stream in self.streams.items():
            if stream.has_row_per_sample and stream.batches == self.batches:
                shown = name if number == 1 else f"{name}#{number}"
                self.recorder.emit(
                    f.ROWS, name=shown, location_id=location_id, inputs=self.passes,
                    outputs=stream.hasher.digest(), phase=f.FORWARD,
                )  # fmt: skip
        self.reset_data_loader_pass()

    def reset_data_loader_pass(self) -> None:
        """Drop also what an interrupted pass has given: with smaller batches, it stops at another sample."""
        self.iterator, self.rows, self.batches = None, -1, 0
        self.streams.clear()
        self.counts.clear()

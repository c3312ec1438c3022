"""Passes over a `samerun.data.DataLoader` in which nothing is trained: smaller batches, and what becomes of samples."""

from __future__ import annotations

from typing import Any

from samerun.record.watching.interceptor import Interceptor, replace
from samerun.record.watching.recorder import Recorder


def install(recorder: Recorder, loader: Any) -> None:
    """Let an iteration without gradients hand out batches of half the size."""
    if not recorder.config.split_batches:
        return
    import torch

    def iterating(original: Any) -> Any:
        def __iter__(self: Any) -> Any:
            size = self.batch_size
            fixed = self.drop_last or isinstance(self.dataset, torch.utils.data.IterableDataset)
            if torch.is_grad_enabled() or fixed or not isinstance(size, int) or size < 2:
                return original(self)  # else other samples would be left out, or come in another order
            held = vars(self)  # torch refuses another batch size by an error of its `__setattr__`
            held["batch_size"] = (size + 1) // 2
            try:
                return original(self)
            finally:
                held["batch_size"] = size

        return __iter__

    replace(loader.DataLoader, "__iter__", iterating)


def install_rows(recorder: Recorder, iterators: Any) -> None:
    if recorder.config.hash_rows:
        from samerun.record.watching.rows import Rows

        recorder.rows = Rows(recorder, (iterators.Single, iterators.Multi))


INTERCEPTOR = Interceptor("passes", "samerun.data.loader", install)
ROWS = Interceptor("passes-rows", "samerun.data.iterators", install_rows)

"""DataLoader: when an iterator starts, what each batch holds, and which process is which worker."""

from __future__ import annotations

from typing import Any

from samerun.record import format as f
from samerun.record.interceptor import Interceptor, replace
from samerun.record.recorder import Recorder
from samerun.record.trees import tree_digest


def install(recorder: Recorder, dataloader: Any) -> None:
    """Wrap the iterators' construction and `__next__`."""
    import torch

    base = dataloader._BaseDataLoaderIter
    begin, following = base.__init__, base.__next__

    def start(self: Any, loader: Any) -> None:
        state = recorder.thread
        recorder.loaders += 1
        recorder.host(f.LOADER, "DataLoader", inputs=int(getattr(loader, "num_workers", 0) or 0))
        phase, state.phase = state.phase, f.DATA
        try:
            begin(self, loader)
        finally:
            state.phase = phase

    def fetch(self: Any) -> Any:
        state = recorder.thread
        phase, state.phase = state.phase, f.DATA
        try:
            batch = following(self)
        finally:
            state.phase = phase
        if not recorder.stopped and not state.inside:
            state.inside += 1
            try:
                value = tree_digest(batch, torch.Tensor)
            except Exception:
                value = b"\0" * 16
            finally:
                state.inside -= 1
            recorder.last_batch = value
            recorder.host(f.BATCH, "DataLoader", outputs=value)
        return batch

    base.__init__, base.__next__ = start, fetch
    replace(dataloader.DataLoader, "__init__", lambda original: making(recorder, original))


def making(recorder: Recorder, original: Any) -> Any:
    """Note where a loader is made, and whether it may hand over batches out of order."""

    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        recorder.host(f.LOADER, "DataLoader", aux="made", inputs=int(kwargs.get("in_order", True)))
        original(self, *args, **kwargs)

    return __init__


def install_worker(recorder: Recorder, worker: Any) -> None:
    """A worker process is named after its loader and its number."""
    loop = worker._worker_loop

    def _worker_loop(dataset_kind: Any, dataset: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            # positions: index_queue, data_queue, done_event, auto_collation, collate_fn, drop_last,
            # base_seed, init_fn, worker_id, num_workers, ...
            number = args[8] if len(args) > 8 else kwargs.get("worker_id", 0)
            parent = recorder.own_role().rsplit("/", 1)[0]
            recorder.rename(f"{parent}/loader{recorder.loaders}.worker{number}")
            recorder.thread.phase = f.DATA
        except Exception as error:
            recorder.stop(f"samerun could not name a DataLoader worker: {error!r}")
        return loop(dataset_kind, dataset, *args, **kwargs)

    _worker_loop.__module__, _worker_loop.__qualname__ = loop.__module__, loop.__qualname__
    worker._worker_loop = _worker_loop


INTERCEPTOR = Interceptor("loader", "torch.utils.data.dataloader", install)
IN_WORKER = Interceptor("loader-worker", "torch.utils.data._utils.worker", install_worker)

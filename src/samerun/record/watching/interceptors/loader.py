"""DataLoader: when an iterator starts, what each batch holds, and which process is which worker."""

from __future__ import annotations

import inspect
import os
from typing import Any

from samerun.record.digests.trees import tree_digest
from samerun.record.trace import format as f
from samerun.record.watching import sites
from samerun.record.watching.completions import takes_in_order
from samerun.record.watching.interceptor import Interceptor, replace
from samerun.record.watching.recorder import Recorder

LOADER_VARIABLE = "SAMERUN_LOADER"


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
        except StopIteration:
            if recorder.rows is not None and recorder.rows.is_of(self):
                recorder.rows.end()
            raise
        finally:
            state.phase = phase
        if not recorder.stopped and not state.inside:
            state.inside += 1
            try:
                if recorder.replayer is not None:
                    batch = recorder.replayer.batch(batch)
                value = tree_digest(batch, torch.Tensor)
            except Exception:
                value = b"\0" * 16
            finally:
                state.inside -= 1
            recorder.last_batch = value
            if recorder.rows is not None:
                recorder.rows.handed_over(self, batch)
            recorder.host(f.BATCH, "DataLoader", outputs=value)
        return batch

    base.__init__, base.__next__ = start, fetch
    replace(dataloader._MultiProcessingDataLoaderIter, "__init__", lambda original: numbering(recorder, original))
    replace(dataloader.DataLoader, "__init__", lambda original: making(recorder, original))


def numbering(recorder: Recorder, original: Any) -> Any:
    """Tell workers that do not inherit memory which loader they belong to. They start in here."""

    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        os.environ[LOADER_VARIABLE] = str(recorder.loaders + 1)
        try:
            original(self, *args, **kwargs)
        finally:
            os.environ.pop(LOADER_VARIABLE, None)

    return __init__


def making(recorder: Recorder, original: Any) -> Any:
    """Note where a loader is made, and whether it may hand over batches out of order."""
    parameters = inspect.signature(original)

    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        recorder.host(f.LOADER, "DataLoader", aux="made", inputs=int(kwargs.get("in_order", True)))
        if recorder.config.extra_workers:
            given = parameters.bind(self, *args, **kwargs)
            count = int(given.arguments.get("num_workers") or 0)
            given.arguments["num_workers"] = count + 1 if count else 2
            args, kwargs = given.args[1:], given.kwargs
        if "in_order" in kwargs and takes_in_order(recorder):
            kwargs["in_order"] = True
        original(self, *args, **kwargs)
        note_iterable(recorder, getattr(self, "dataset", None))

    return __init__


def note_iterable(recorder: Recorder, dataset: Any) -> None:
    """Where a dataset that is iterated says what it yields: every worker goes through all of it."""
    if not any(kind.__name__ == "IterableDataset" for kind in type(dataset).__mro__):
        return
    code = getattr(type(dataset).__iter__, "__code__", None)
    if code is not None and sites.kind_of(code) == sites.USER:
        placed = (code.co_filename, code.co_firstlineno, True)
        recorder.host(f.LOADER, "IterableDataset", aux="iterable", placed=placed)


def install_worker(recorder: Recorder, worker: Any) -> None:
    """A worker process is named after its loader and its number."""
    loop = worker._worker_loop

    def _worker_loop(dataset_kind: Any, dataset: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            # positions: index_queue, data_queue, done_event, auto_collation, collate_fn, drop_last,
            # base_seed, init_fn, worker_id, num_workers, ...
            number = args[8] if len(args) > 8 else kwargs.get("worker_id", 0)
            parent = recorder.own_role().rsplit("/", 1)[0]
            loader = recorder.loaders or int(os.environ.get(LOADER_VARIABLE, "0"))
            recorder.rename(f"{parent}/loader{loader}.worker{number}")
            recorder.thread.phase = f.DATA
        except Exception as error:
            recorder.stop(f"samerun could not name a DataLoader worker: {error!r}")
        return loop(dataset_kind, dataset, *args, **kwargs)

    _worker_loop.__module__, _worker_loop.__qualname__ = loop.__module__, loop.__qualname__
    worker._worker_loop = _worker_loop


INTERCEPTOR = Interceptor("loader", "torch.utils.data.dataloader", install)
IN_WORKER = Interceptor("loader-worker", "torch.utils.data._utils.worker", install_worker)

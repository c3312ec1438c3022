"""DataLoader: when an iterator starts, what each batch holds, which process is which worker.

Passes over a `samerun.data.DataLoader` in which nothing is trained can be given smaller batches, and every sample can
be followed through the operators.
"""

from __future__ import annotations

import inspect
import os
from typing import Any

from samerun.record.digests.state_digests import digest_tree
from samerun.record.trace import format as f
from samerun.record.watching import stack_frames
from samerun.record.watching.interceptor import Interceptor, pins_results_to_submission_order, wrap_attribute
from samerun.record.watching.recorder import Recorder

LOADER_VARIABLE = "SAMERUN_LOADER"


def intercept_dataloader(recorder: Recorder, dataloader: Any) -> None:
    """Wrap the iterators' construction and `__next__`."""
    import torch

    base = dataloader._BaseDataLoaderIter
    original_init, original_next = base.__init__, base.__next__

    def start_iterator(self: Any, loader: Any) -> None:
        state = recorder.thread
        recorder.loader_count += 1
        recorder.emit_host_event(f.LOADER, "DataLoader", inputs=int(getattr(loader, "num_workers", 0) or 0))
        phase, state.phase = state.phase, f.DATA
        try:
            original_init(self, loader)
        finally:
            state.phase = phase

    def next_batch(self: Any) -> Any:
        state = recorder.thread
        phase, state.phase = state.phase, f.DATA
        try:
            batch = original_next(self)
        except StopIteration:
            if recorder.sample_rows is not None and recorder.sample_rows.is_current_pass(self):
                recorder.sample_rows.emit_row_digests_and_end_pass()
            raise
        finally:
            state.phase = phase
        if not recorder.stopped and not state.inside_samerun:
            state.inside_samerun += 1
            try:
                if recorder.replayer is not None:
                    batch = recorder.replayer.save_or_replay_batch(batch)
                value = digest_tree(batch, torch.Tensor)
            except Exception:
                value = b"\0" * 16
            finally:
                state.inside_samerun -= 1
            recorder.last_batch = value
            if recorder.sample_rows is not None:
                recorder.sample_rows.begin_batch_if_inference(self, batch)
            recorder.emit_host_event(f.BATCH, "DataLoader", outputs=value)
        return batch

    base.__init__, base.__next__ = start_iterator, next_batch
    workers = dataloader._MultiProcessingDataLoaderIter
    wrap_attribute(workers, "__init__", lambda original: wrap_init_to_export_loader_number(recorder, original))
    wrap_attribute(
        dataloader.DataLoader, "__init__", lambda original: wrap_init_to_record_and_vary_loader(recorder, original)
    )


def wrap_init_to_export_loader_number(recorder: Recorder, original: Any) -> Any:
    """Tell workers that do not inherit memory which loader they belong to. They start in here."""

    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        os.environ[LOADER_VARIABLE] = str(recorder.loader_count + 1)
        try:
            original(self, *args, **kwargs)
        finally:
            os.environ.pop(LOADER_VARIABLE, None)

    return __init__


def wrap_init_to_record_and_vary_loader(recorder: Recorder, original: Any) -> Any:
    """Note where a loader is made, and whether it may hand over batches out of order."""
    parameters = inspect.signature(original)

    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        recorder.emit_host_event(f.LOADER, "DataLoader", aux="made", inputs=int(kwargs.get("in_order", True)))
        if recorder.config.extra_workers:
            given = parameters.bind(self, *args, **kwargs)
            count = int(given.arguments.get("num_workers") or 0)
            given.arguments["num_workers"] = count + 1 if count else 2
            args, kwargs = given.args[1:], given.kwargs
        if "in_order" in kwargs and pins_results_to_submission_order(recorder):
            kwargs["in_order"] = True
        original(self, *args, **kwargs)
        record_user_iterable_dataset(recorder, getattr(self, "dataset", None))

    return __init__


def record_user_iterable_dataset(recorder: Recorder, dataset: Any) -> None:
    """Where a dataset that is iterated says what it yields: every worker goes through all of it."""
    if not any(kind.__name__ == "IterableDataset" for kind in type(dataset).__mro__):
        return
    code = getattr(type(dataset).__iter__, "__code__", None)
    if code is not None and stack_frames.classify_code(code) == stack_frames.USER:
        user_line = stack_frames.UserLine(code.co_filename, code.co_firstlineno, True)
        recorder.emit_host_event(f.LOADER, "IterableDataset", aux="iterable", user_line=user_line)


def intercept_worker_loop_to_set_role(recorder: Recorder, worker: Any) -> None:
    """A worker process is named after its loader and its number."""
    loop = worker._worker_loop

    def _worker_loop(dataset_kind: Any, dataset: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            # positions: index_queue, data_queue, done_event, auto_collation, collate_fn, drop_last,
            # base_seed, init_fn, worker_id, num_workers, ...
            number = args[8] if len(args) > 8 else kwargs.get("worker_id", 0)
            parent = recorder.process_role_path().rsplit("/", 1)[0]
            loader = recorder.loader_count or int(os.environ.get(LOADER_VARIABLE, "0"))
            recorder.set_role_if_no_event_yet(f"{parent}/loader{loader}.worker{number}")
            recorder.thread.phase = f.DATA
        except Exception as error:
            recorder.stop(f"samerun could not name a DataLoader worker: {error!r}")
        return loop(dataset_kind, dataset, *args, **kwargs)

    _worker_loop.__module__, _worker_loop.__qualname__ = loop.__module__, loop.__qualname__
    worker._worker_loop = _worker_loop


DATALOADER = Interceptor("loader", "torch.utils.data.dataloader", intercept_dataloader)
WORKER = Interceptor("loader-worker", "torch.utils.data._utils.worker", intercept_worker_loop_to_set_role)


def halve_inference_batches_if_configured(recorder: Recorder, loader: Any) -> None:
    """Let an iteration without gradients hand out batches of half the size."""
    if not recorder.config.split_batches:
        return
    import torch

    def wrap_iter(original: Any) -> Any:
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

    wrap_attribute(loader.DataLoader, "__iter__", wrap_iter)


def enable_sample_row_hashing_if_configured(recorder: Recorder, iterators: Any) -> None:
    if recorder.config.hash_rows:
        from samerun.record.watching.sample_rows import SampleRows

        recorder.sample_rows = SampleRows(recorder, (iterators.SingleProcessIterator, iterators.MultiProcessIterator))


SPLIT_PASSES = Interceptor("passes", "samerun.data.loader", halve_inference_batches_if_configured)
SAMPLE_ROWS = Interceptor("passes-rows", "samerun.data.iterators", enable_sample_row_hashing_if_configured)

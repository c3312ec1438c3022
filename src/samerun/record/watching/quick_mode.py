"""The quick way of `OperatorMode`, in C (`native/watch`), if it was built and fits this torch. Imports torch.

It records the usual operator (plain tensors on the CPU, nothing random, nothing uninitialised) on the same objects as
the mode's own methods, and leaves all others to those (decision 0027).
"""

from __future__ import annotations

import functools
import os
import sys
import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import torch
from xxhash import xxh3_64_intdigest, xxh3_128_digest

from samerun.record.digests import digest as d
from samerun.record.digests import pieces
from samerun.record.digests.storages import SMALL_BYTES, StorageDigests, StorageRecord
from samerun.record.digests.torch_guards import ODD_DTYPES
from samerun.record.trace import format as f
from samerun.record.trace.writer import TraceWriter
from samerun.record.watching import stack_frames
from samerun.record.watching.operator_mode import OperatorMode, OperatorTable
from samerun.record.watching.recorder import Recorder
from samerun.record.watching.thread_state import ThreadState
from samerun.record.watching.torch_internals import NODE_RING, exclude_from_compilation
from samerun.record.watching.watched_operator import WatchedOperator, flatten_to_tensors_and_stable_values

_watch: Any
try:
    from samerun.record.watching import _watch  # type: ignore[attr-defined, no-redef]
except ImportError:  # it was not built, or for another Python
    _watch = None


def choose_digest_function() -> Callable[[Any], bytes]:
    """`digest.digest`, or what gives the same faster where the library is there."""
    faster: Callable[[Any], bytes] = d.digest if load_quick_mode_class() is None else _watch.digest
    return faster


def choose_digest_list_function() -> Callable[[list[Any], Callable[[Any], bytes]], bytes]:
    """`digest.digest_of_element_digests`, or what gives the same faster where the library is there."""
    faster: Callable[[list[Any], Callable[[Any], bytes]], bytes]
    faster = d.digest_of_element_digests if load_quick_mode_class() is None else _watch.digest_of_element_digests
    return faster


@functools.cache
def load_quick_mode_class() -> type[OperatorMode] | None:
    """The class of the quick mode; None if there is no library, or it does not know this torch."""
    if _watch is None:
        return None
    try:
        _watch.setup(collect_objects_for_c_library())
    except (AttributeError, TypeError):  # another torch than it knows
        return None
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=_watch.stop_borrowing_threads_after_fork)

    exclude_from_compilation(
        OperatorMode._record_results, OperatorMode._count_skipped_operator, StorageDigests.find_or_add_record,
        StorageDigests.digest_input, StorageDigests.digest_new_memory, StorageDigests.digest_written,
        StorageDigests.drop_expired, flatten_to_tensors_and_stable_values, stack_frames.classify_code, d.shape_seed,
        d.digest, Recorder.open_writer, TraceWriter.intern_location, TraceWriter.intern_string, TraceWriter.append,
    )  # fmt: skip

    class QuickMode(_watch.Watcher, OperatorMode):  # type: ignore[misc, no-untyped-call]
        def __init__(self, table: OperatorTable) -> None:
            OperatorMode.__init__(self, table)
            storages, slow = table.storages, OperatorMode.__torch_dispatch__.__get__(self)
            self.attach(table.recorder, self.state, storages, storages.records, table.by_id, table.location_ids, slow)

        __torch_dispatch__ = _watch.Watcher.dispatch

    skip_dispatch_rule_lookup_for(QuickMode)
    return QuickMode


_registry: Any = sys.modules.get("torch._library.simple_registry")
_find_dispatch_rule: Any = getattr(_registry, "find_torch_dispatch_rule", None)


def skip_dispatch_rule_lookup_for(mode_class: type) -> None:
    """torch asks nobody for rules before each call of this mode. It looks up whom to ask once, at the first mode."""
    if _find_dispatch_rule is not None:
        _watch.skip_dispatch_rule_lookup_for(mode_class, _find_dispatch_rule)
        _registry.find_torch_dispatch_rule = _watch.find_torch_dispatch_rule_unless_own_mode


def make_operator_mode(table: OperatorTable) -> OperatorMode:
    """An operator mode for this thread. Runs that are changed on purpose (captured, replayed) go the slow way only."""
    config = table.recorder.config
    slow = (
        config.capture is not None
        or config.replay is not None
        or config.hash_rows
        or config.rewinds_draws_of_some_lines
    )
    quick = None if slow else load_quick_mode_class()
    return OperatorMode(table) if quick is None else quick(table)


def collect_objects_for_c_library() -> SimpleNamespace:
    """The objects and numbers that the library works with: `host_objects_t` in native/watch/watch.h."""
    digest_pieces, openmp_parallel = pieces.piece_digest_and_gomp_addresses()
    return SimpleNamespace(
        Tensor=torch.Tensor,
        Parameter=torch.nn.Parameter,
        strided=torch.strided,
        odd_dtypes=ODD_DTYPES,
        flatten_to_tensors_and_stable_values=flatten_to_tensors_and_stable_values,
        StorageRecord=StorageRecord,
        UntypedStorage=torch.UntypedStorage,
        WatchedOperator=WatchedOperator,
        ThreadState=ThreadState,
        xxh3_128_digest=xxh3_128_digest,
        xxh3_64_intdigest=xxh3_64_intdigest,
        shape_seed=d.shape_seed,
        shape_seeds=d._shape_seeds,
        digest_dense_tensor=d.digest_contiguous_cpu_tensor,
        digest=d.digest,
        graph_task=torch._C._current_graph_task_id,
        next_sequence=torch._C._autograd._get_sequence_nr,
        current_node=torch._C._current_autograd_node,
        grad_enabled=torch.is_grad_enabled,
        get_num_threads=torch.get_num_threads,
        function_mode=torch._C._is_torch_function_mode_enabled,
        code_kinds=stack_frames._code_kinds,
        classify_code=stack_frames.classify_code,
        user_kind=stack_frames.USER,
        node_ring=NODE_RING,
        phase_forward=f.FORWARD,
        phase_backward=f.BACKWARD,
        phase_optimizer=f.OPTIMIZER,
        phase_between=f.BETWEEN,
        event_operator=f.OPERATOR,
        flag_foreign_write=f.FOREIGN_WRITE,
        flag_no_inputs=f.NO_INPUTS,
        large_bytes=pieces.LARGE,
        piece_bytes=pieces.PIECE,
        small_bytes=SMALL_BYTES,
        digest_pieces=digest_pieces,
        openmp_parallel=openmp_parallel,
        main_thread=threading.main_thread().ident,
    )

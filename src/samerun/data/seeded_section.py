"""A section of code in which the global generators are seeded per sample, and restored when it ends."""

from __future__ import annotations

import os
import random
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from types import TracebackType
from typing import Any

import numpy as np
import torch

from samerun.control.random_source import RandomSource, derive_seed
from samerun.control.rng.seeding import all_random_sources, available_random_sources
from samerun.control.streams import process_seed
from samerun.control.streams.process_seed import ProcessOrigin
from samerun.control.streams.stream import process_streams
from samerun.data import generator_seeding
from samerun.data.generator_seeding import (
    GeneratorStateRows,
    get_global_numpy_bit_generator,
    seed_before_each_sample_by_library,
    view_numpy_words_and_gauss_memory,
    view_python_generator_memory,
)
from samerun.data.keys import KeyContext


class PythonSnapshot:
    """The state of Python's global generator, taken when this object is made."""

    def __init__(self) -> None:
        self._generator: Any = random._inst
        self._memory = view_python_generator_memory()
        if self._memory is None:
            self._state = random.getstate()
        else:
            self._words = bytes(self._memory)
            self._normal = getattr(self._generator, "gauss_next")

    def restore(self) -> None:
        if self._memory is None:
            random.setstate(self._state)
        else:
            self._memory[:] = self._words
            self._generator.gauss_next = self._normal


class NumpySnapshot:
    """The state of NumPy's global generator, taken when this object is made."""

    def __init__(self) -> None:
        self._bit_generator = get_global_numpy_bit_generator()
        self._memory = view_numpy_words_and_gauss_memory()
        if self._memory is None:
            self._state: Any = np.random.get_state(legacy=False)
        else:
            words, normal = self._memory
            self._words, self._normal = bytes(words), bytes(normal)

    def restore(self) -> None:
        if get_global_numpy_bit_generator() is not self._bit_generator:
            random_of_numpy: Any = np.random  # its stubs lack the function
            random_of_numpy.set_bit_generator(self._bit_generator)
        if self._memory is None:
            np.random.set_state(self._state)
        else:
            words, normal = self._memory
            words[:], normal[:] = self._words, self._normal


class TorchSnapshot:
    """The state of torch's default CPU generator, taken when this object is made."""

    def __init__(self) -> None:
        self._state = torch.default_generator.get_state()

    def restore(self) -> None:
        torch.default_generator.set_state(self._state)


SNAPSHOTS: dict[str, Any] = {"python": PythonSnapshot, "numpy": NumpySnapshot, "torch": TorchSnapshot}
"""By kind of generator, in the order in which they are restored."""
GENERATOR_KINDS = frozenset(SNAPSHOTS)
"""The generators that the argument `keyed` selects by name; those of `find_always_keyed_sources` are always keyed."""


class _SampleOrigin(ProcessOrigin):
    """The origin of named streams while a sample is loaded: the sample, whichever process or rank loads it."""

    def current_path(self) -> str:
        context, number, repetition = _current_samples.context, *_current_samples.current_number_and_repetition()
        return f"data/{context.purpose}/{context.name}/{context.epoch}/{number}/{repetition}"


class _SampleCursor:
    """Which sample is being loaded, read off the length of the list that loaded samples are appended to.

    So nothing has to be set per sample: named streams ask for it rarely, samples are loaded often.
    """

    def __init__(
        self, context: KeyContext, numbers: Sequence[int], repetitions: Sequence[int] | None, loaded: list[Any]
    ) -> None:
        self.context, self._numbers, self._repetitions, self._loaded = context, numbers, repetitions, loaded

    def current_number_and_repetition(self) -> tuple[int, int]:
        """Return the number and the repetition of the sample being loaded; of the last one when all are loaded."""
        at = min(len(self._loaded), len(self._numbers) - 1)
        return int(self._numbers[at]), 0 if self._repetitions is None else self._repetitions[at]


_current_samples = _SampleCursor(KeyContext(0, "", 0), [0], None, [])
_SAMPLE_ORIGIN = _SampleOrigin()
_nested_rows: list[GeneratorStateRows] = []
"""One set of buffers per nesting depth: an outer section continues when the inner one has ended."""
_depth = 0
_process_lock = threading.RLock()
"""Global generators belong to the process: while one thread loads a batch, other threads wait."""


def _reset_lock_and_depth_after_fork() -> None:
    global _process_lock, _depth
    _depth = 0
    _process_lock = threading.RLock()  # its owner may be a thread that only the parent has


os.register_at_fork(after_in_child=_reset_lock_and_depth_after_fork)
_cached_others: tuple[tuple[int, int], list[RandomSource]] | None = None


def find_always_keyed_sources() -> list[RandomSource]:
    """Return the other generators in use: registered ones, those of devices and of other libraries."""
    global _cached_others
    known = (len(sys.modules), len(all_random_sources()))
    if _cached_others is None or _cached_others[0] != known:
        found = [source for source in available_random_sources() if source.name not in GENERATOR_KINDS | {"streams"}]
        _cached_others = known, found
    return [source for source in _cached_others[1] if _needs_no_device_initialization(source)]


def _needs_no_device_initialization(source: RandomSource) -> bool:
    """Return False for a device that is not initialized: torch queues each seed call there, with a stack trace."""
    if not source.name.startswith("torch_"):
        return True
    device: Any = getattr(torch, source.name.removeprefix("torch_"), None)
    return bool(getattr(device, "is_initialized", lambda: True)())


class SeededSection:
    """Inside the section, `load_samples` and `seed_for_batch_or_shard` seed the generators; leaving it restores them.

    restore: False in a DataLoader worker, where nobody else draws from the generators. Sections may be nested: a
    dataset may itself iterate over a loader.
    """

    def __init__(self, seed: int, kinds: frozenset[str], restore: bool) -> None:
        self._run_seed, self._kinds, self._restore = seed, kinds, restore
        self.others = find_always_keyed_sources()

    def __enter__(self) -> SeededSection:
        global _depth
        _process_lock.acquire()
        _depth += 1
        self._seed, self._origin = process_seed.current_streams_seed(), process_seed.current_origin()
        self._outer = _current_samples
        self._restore = self._restore or _depth > 1  # the generators of the outer sample must continue
        try:
            self._rows = (
                _get_state_rows_of_depth() if generator_seeding.can_seed_by_writing_states(self._kinds) else None
            )
            if self._restore:
                self._save_generators()
        except BaseException:
            self._release_lock()
            raise
        process_seed.set_streams_seed_and_origin(self._run_seed, _SAMPLE_ORIGIN)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        global _current_samples
        _current_samples = self._outer
        process_seed.set_streams_seed_and_origin(self._seed, self._origin)
        try:
            if self._restore:
                self._restore_generators()
        finally:
            self._release_lock()

    def _release_lock(self) -> None:
        global _depth
        _depth -= 1
        _process_lock.release()

    def _save_generators(self) -> None:
        self._snapshots = [snapshot() for kind, snapshot in SNAPSHOTS.items() if kind in self._kinds]
        self._other_states = [(source, source.get_state()) for source in self.others]
        self._stream_state = _find_streams_source().get_state() if process_streams else None

    def _restore_generators(self) -> None:
        for snapshot in self._snapshots:
            snapshot.restore()
        for source, state in self._other_states:
            if state is not None:
                source.set_state(state)
        if process_streams:
            source = _find_streams_source()
            now: Any = source.get_state()
            source.set_state(self._stream_state or {**now, "streams": []})
            process_seed.set_streams_seed_and_origin(self._seed, self._origin)

    def load_samples(
        self,
        context: KeyContext,
        key_numbers: Sequence[int],
        repetitions: Sequence[int] | None,
        load_one: Callable[[Any], Any],
        indices: Iterable[Any],
        empty_list_to_fill: list[Any],
    ) -> None:
        """Append `load_one(index)` for each index to the empty list `empty_list_to_fill`, with the generators seeded
        for each.

        key_numbers, repetitions: of the samples, see `KeyContext.derive_keys`.
        """
        samples = self._set_current_samples(context, key_numbers, repetitions, empty_list_to_fill)
        others = self.others
        for index, _ in zip(indices, self._seed_before_each_sample(context, key_numbers, repetitions), strict=True):
            if process_streams or others:
                self._restart_streams_and_seed_others(context.derive_key64(*samples.current_number_and_repetition()))
            empty_list_to_fill.append(load_one(index))

    def seed_for_batch_or_shard(self, context: KeyContext, item_number: int) -> None:
        """Seed every generator for item `item_number` of the context: a batch, a shard, a sampler."""
        samples = self._set_current_samples(context, [item_number], None, [])
        next(self._seed_before_each_sample(context, [item_number], None))
        if process_streams or self.others:
            self._restart_streams_and_seed_others(context.derive_key64(*samples.current_number_and_repetition()))

    def _set_current_samples(
        self, context: KeyContext, numbers: Sequence[int], repetitions: Sequence[int] | None, loaded: list[Any]
    ) -> _SampleCursor:
        global _current_samples
        _current_samples = _SampleCursor(
            context, numbers, repetitions, loaded
        )  # a named stream that a sample creates reads it
        return _current_samples

    def _seed_before_each_sample(
        self, context: KeyContext, numbers: Sequence[int], repetitions: Sequence[int] | None
    ) -> Iterator[Any]:
        """Return an iterator; each `next` seeds the generators for the next sample."""
        if self._rows is not None:
            return self._rows.seed_before_each_sample(
                context.derive_key_arrays(numbers, repetitions, self._kinds), len(numbers)
            )
        return seed_before_each_sample_by_library(context.derive_keys(numbers, repetitions, self._kinds), len(numbers))

    def _restart_streams_and_seed_others(self, key: int) -> None:
        """Restart the named streams, and seed the generators that `keyed` does not select by name."""
        for stream in process_streams.values():
            stream.restart_generators()
        for source in self.others:
            source.seed(derive_seed(key, source.name))


def _get_state_rows_of_depth() -> GeneratorStateRows:
    """Return the buffers of the present nesting depth."""
    while len(_nested_rows) < _depth:
        _nested_rows.append(GeneratorStateRows())
    return _nested_rows[_depth - 1]


def _find_streams_source() -> RandomSource:
    return next(source for source in all_random_sources() if source.name == "streams")

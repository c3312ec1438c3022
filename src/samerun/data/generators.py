"""The global generators of this process: start them from keys, and put them back where they stood."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from types import TracebackType
from typing import Any

import torch

from samerun.control.rng.seeding import all_sources, available_sources
from samerun.control.seed_derivation import derive_seed
from samerun.control.seeds.source import RandomSource
from samerun.control.streams import process_seed
from samerun.control.streams.process_seed import ProcessOrigin
from samerun.control.streams.stream import process_streams
from samerun.data import seeded_states
from samerun.data.holds import HOLDS
from samerun.data.keys import Realm
from samerun.data.seeded_states import StateRows
from samerun.data.seeding import seeded_one_by_one

KINDS = frozenset(HOLDS)
"""What is keyed by its name; `others` below is always keyed."""


class _InSample(ProcessOrigin):
    """The place of named streams while a sample is being loaded: the sample, wherever it is loaded."""

    def current_path(self) -> str:
        realm, number, repetition = _samples.realm, *_samples.present()
        return f"data/{realm.what}/{realm.name}/{realm.epoch}/{number}/{repetition}"


class _Samples:
    """Samples that are loaded one after the other into `loaded`, which so tells which one it is."""

    def __init__(
        self, realm: Realm, numbers: Sequence[int], repetitions: Sequence[int] | None, loaded: list[Any]
    ) -> None:
        self.realm, self._numbers, self._repetitions, self._loaded = realm, numbers, repetitions, loaded

    def present(self) -> tuple[int, int]:
        """The number and the repetition of the one that is being loaded; of the last one when all are."""
        at = min(len(self._loaded), len(self._numbers) - 1)
        return int(self._numbers[at]), 0 if self._repetitions is None else self._repetitions[at]


_samples = _Samples(Realm(0, "", 0), [0], None, [])
_IN_SAMPLE = _InSample()
_rows: list[StateRows] = []
"""For each section that is inside another: an outer one goes on when the inner one has ended."""
_depth = 0
_one_at_a_time = threading.RLock()
"""Global generators belong to the process: while one thread loads a batch, others wait."""


def _in_child() -> None:
    global _one_at_a_time, _depth
    _depth = 0
    _one_at_a_time = threading.RLock()  # its owner may be a thread that only the parent has


os.register_at_fork(after_in_child=_in_child)
_others: tuple[tuple[int, int], list[RandomSource]] | None = None


def others() -> list[RandomSource]:
    """Further generators that are here and in use: registered ones, devices', other libraries'."""
    global _others
    known = (len(sys.modules), len(all_sources()))
    if _others is None or _others[0] != known:
        found = [one for one in available_sources() if one.name not in KINDS | {"streams"}]
        _others = known, found
    return [one for one in _others[1] if _in_use(one)]


def _in_use(source: RandomSource) -> bool:
    """Whether seeding it is cheap: a device that nobody has started keeps a queue, with a stack trace each."""
    if not source.name.startswith("torch_"):
        return True
    device: Any = getattr(torch, source.name.removeprefix("torch_"), None)
    return bool(getattr(device, "is_initialized", lambda: True)())


class Section:
    """Between entering and leaving, `start` starts generators; on leaving, they stand where they stood.

    restore: False in a DataLoader worker, whose streams nobody else draws from. May be nested: a dataset may
    itself iterate over a loader.
    """

    def __init__(self, seed: int, kinds: frozenset[str], restore: bool) -> None:
        self._run_seed, self._kinds, self._restore = seed, kinds, restore
        self.others = others()

    def __enter__(self) -> Section:
        global _depth
        _one_at_a_time.acquire()
        _depth += 1
        self._seed, self._origin, self._outer = process_seed.current_seed(), process_seed.current_origin(), _samples
        self._restore = self._restore or _depth > 1  # inside another sample, its streams must go on
        try:
            self._rows = _rows_here() if seeded_states.applies(self._kinds) else None
            if self._restore:
                self._take()
        except BaseException:
            self._leave()
            raise
        process_seed.set_origin(self._run_seed, _IN_SAMPLE)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        global _samples
        _samples = self._outer
        process_seed.set_origin(self._seed, self._origin)
        try:
            if self._restore:
                self._put_back()
        finally:
            self._leave()

    def _leave(self) -> None:
        global _depth
        _depth -= 1
        _one_at_a_time.release()

    def _take(self) -> None:
        self._holds = [hold() for kind, hold in HOLDS.items() if kind in self._kinds]
        self._other_states = [(one, one.get_state()) for one in self.others]
        self._stream_state = _streams_source().get_state() if process_streams else None

    def _put_back(self) -> None:
        for hold in self._holds:
            hold.put_back()
        for one, state in self._other_states:
            if state is not None:
                one.set_state(state)
        if process_streams:
            source = _streams_source()
            now: Any = source.get_state()
            source.set_state(self._stream_state or {**now, "streams": []})
            process_seed.set_origin(self._seed, self._origin)

    def load(
        self,
        realm: Realm,
        numbers: Sequence[int],
        repetitions: Sequence[int] | None,
        get: Callable[[Any], Any],
        indices: Iterable[Any],
        loaded: list[Any],
    ) -> None:
        """Append `get(index)` for each index to `loaded`, which is empty, each with the generators started for it.

        numbers, repetitions: of the samples, see `Realm.keys`.
        """
        samples = self._loading(realm, numbers, repetitions, loaded)
        others = self.others
        for index, _ in zip(indices, self._started(realm, numbers, repetitions), strict=True):
            if process_streams or others:
                self._start_others(realm.key64(*samples.present()))
            loaded.append(get(index))

    def start(self, realm: Realm, number: int) -> None:
        """Start every generator for whatever `number` counts."""
        samples = self._loading(realm, [number], None, [])
        next(self._started(realm, [number], None))
        if process_streams or self.others:
            self._start_others(realm.key64(*samples.present()))

    def _loading(self, *what: Any) -> _Samples:
        global _samples
        _samples = _Samples(*what)  # a stream that a sample makes asks for it
        return _samples

    def _started(self, realm: Realm, numbers: Sequence[int], repetitions: Sequence[int] | None) -> Iterator[Any]:
        """Each turn starts the generators for the next sample."""
        if self._rows is not None:
            return self._rows.started(realm.arrays(numbers, repetitions, self._kinds), len(numbers))
        return seeded_one_by_one(realm.keys(numbers, repetitions, self._kinds), len(numbers))

    def _start_others(self, key: int) -> None:
        for stream in process_streams.values():
            stream.restart()
        for source in self.others:
            source.seed(derive_seed(key, source.name))


def _rows_here() -> StateRows:
    while len(_rows) < _depth:
        _rows.append(StateRows())
    return _rows[_depth - 1]


def _streams_source() -> RandomSource:
    return next(one for one in all_sources() if one.name == "streams")

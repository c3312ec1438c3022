"""Named random streams: each draws from generators of its own, which nothing else moves."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any, Literal

from samerun.base.errors import SeedError
from samerun.control.random_source import derive_seed, validate_seed
from samerun.control.streams import process_seed
from samerun.control.streams.generator_kinds import (
    NUMPY,
    PYTHON,
    GeneratorKind,
    find_generator_kind,
    is_pickling_for_spawn,
    make_torch_generator_kind,
)

if TYPE_CHECKING:
    import random

    from numpy.random import Generator as NumpyGenerator
    from torch import Generator as TorchGenerator
    from torch import device as Device


Rank = Literal["same", "distinct"]
StreamKey = tuple[str, Rank, int | None]


class NamedStream:
    """What `stream()` gives: generators of Python, NumPy and torch, each made when it is first asked for.

    A copy is the stream itself. A pickle of it holds its name and seed, not its position: see `stream()` for what
    other processes get.
    """

    def __init__(self, key: StreamKey) -> None:
        self.key = key
        self.name, self._rank, self._seed = key
        self.generators: dict[str, tuple[GeneratorKind, Any]] = {}
        self.pending_states: dict[str, Any] = {}  # states of generators that are not made yet
        self.drawn_as: tuple[int, str] | None = None  # rank and process path that the generators were seeded for

    @property
    def python(self) -> random.Random:
        """The stream's `random.Random`."""
        generator: random.Random = self._get_or_make_generator(PYTHON)
        return generator

    @property
    def numpy(self) -> NumpyGenerator:
        """The stream's `numpy.random.Generator`, on PCG64. Imports NumPy."""
        generator: NumpyGenerator = self._get_or_make_generator(NUMPY)
        return generator

    @property
    def torch(self) -> TorchGenerator:
        """The stream's `torch.Generator` on the CPU. Imports torch."""
        generator: TorchGenerator = self._get_or_make_generator(make_torch_generator_kind("cpu"))
        return generator

    def torch_on(self, device: Device | str) -> TorchGenerator:
        """The stream's `torch.Generator` on `device` ("cpu", "cuda", "cuda:1", ...). Imports torch.

        Devices of one kind start from the same seed, so that ranks on different devices draw the same.
        Raises SeedError for a device that torch does not have here.
        """
        import torch

        try:
            generator: TorchGenerator = self._get_or_make_generator(
                make_torch_generator_kind(_name_device_with_index(torch.device(device)))
            )
        except (RuntimeError, AssertionError, TypeError) as error:
            reason = (str(error).strip() or type(error).__name__).splitlines()[0].partition(". ")[0]
            raise SeedError(
                f"{self!r}.torch_on({str(device)!r}): torch gives no generator for this device: {reason}",
                "Pass a device that this machine has, such as 'cpu'.",
            ) from error
        return generator

    def restart_generators(self) -> None:
        """Reseed every generator, in place, for this process and rank."""
        self.pending_states.clear()
        if self._derive_base_seed() is None:
            self.generators.clear()  # back to before the first seeding: there is nothing to draw from
        self.drawn_as = self._read_rank_and_lineage_path() if self.generators else None
        self._reseed_generators()

    def restore_states_and_reseed_others(
        self, states: dict[str, tuple[GeneratorKind, Any]], saved_rank: int | None = None
    ) -> None:
        """Give each generator its state and reseed the others. One that is not made yet gets its state when it is.

        saved_rank: the one that the states were taken at; it counts while this process does not know its own.
        """
        previous = self.drawn_as or (None if saved_rank is None else (saved_rank, ""))
        kept = {name: self.generators.pop(name) for name in states if name in self.generators}
        self.restart_generators()
        self.generators.update(kept)
        if states:
            self.drawn_as = previous  # _read_rank_and_lineage_path() falls back on this rank
            self.drawn_as = self._read_rank_and_lineage_path()
        for kind, state in states.values():
            if kind.name in kept or kind.can_make():
                kind.set_state(self._get_or_make_generator(kind), state)
            else:
                self.pending_states[kind.name] = state

    def reset_in_forked_child(self) -> None:
        """Reseed for this child: one that kept the parent's generators would draw what its siblings draw."""
        self.pending_states.clear()
        self.generators = {name: entry for name, entry in self.generators.items() if not _is_accelerator_kind(name)}
        if self.drawn_as is not None:
            self.drawn_as = (self.drawn_as[0], process_seed.current_origin().current_path())
            self._reseed_generators()

    def _reseed_generators(self) -> None:
        for kind, generator in self.generators.values():
            kind.reseed(generator, self._derive_generator_seed(kind))

    def _get_or_make_generator(self, kind: GeneratorKind) -> Any:
        self._reseed_if_forked_raise_if_rank_changed()
        if kind.name not in self.generators:
            generator = kind.make(self._derive_generator_seed(kind))
            generator.home = (_unpickle_generator, (self, kind.name))
            if kind.name in self.pending_states:
                try:
                    kind.set_state(generator, self.pending_states[kind.name])
                except Exception as error:
                    hint = "The state is of another version of the library, or it is damaged."
                    raise SeedError(f"{self!r}: {kind.name} did not take its state: {error}", hint) from error
                del self.pending_states[kind.name]
            self.generators[kind.name] = (kind, generator)
        return self.generators[kind.name][1]

    def _reseed_if_forked_raise_if_rank_changed(self) -> None:
        """Reseed the generators if this process is no longer the one, or the rank, that they were seeded for."""
        now = self._read_rank_and_lineage_path()
        if self.drawn_as == now:
            return
        if self.drawn_as is None or not (self.generators or self.pending_states):
            self.drawn_as = now
        elif self.drawn_as[1] != now[1]:
            # Another process than the one that drew: a forked or spawned child starts from a beginning of its own.
            self.restart_generators()
        else:
            # The rank changed within one process: numbers that were drawn as the wrong rank cannot be taken back.
            raise SeedError(
                f"{self!r}: it was drawn from when this process was rank {self.drawn_as[0]}, which is rank"
                f" {now[0]} now.",
                "Draw from it after init_process_group() only, or set RANK in the environment before.",
            )

    def _read_rank_and_lineage_path(self) -> tuple[int, str]:
        """The rank and the process path that the generators must be seeded for now."""
        rank = 0
        if self._rank == "distinct":
            before = None if self.drawn_as is None else self.drawn_as[0]
            candidates = (process_seed.find_acting_rank(), process_seed.current_origin().rank, before)
            rank = next((candidate for candidate in candidates if candidate is not None), 0)
        return rank, process_seed.current_origin().current_path()

    def _derive_base_seed(self) -> int | None:
        return process_seed.current_streams_seed() if self._seed is None else derive_seed(self._seed, "streams")

    def _derive_generator_seed(self, kind: GeneratorKind) -> int:
        assert self.drawn_as is not None
        rank, path = self.drawn_as
        seed = self._derive_base_seed()
        if seed is None:
            raise make_unseeded_error(self)
        # A JSON list, because joined strings could collide. The device index is left out: devices of one kind share a
        # seed, so that ranks on different devices draw the same.
        parts = [self.name, rank if self._rank == "distinct" else None, path, kind.name.partition(":")[0]]
        return derive_seed(seed, json.dumps(parts))

    def __repr__(self) -> str:
        rank = "" if self._rank == "same" else f", rank={self._rank!r}"
        return f"stream({self.name!r}{'' if self._seed is None else f', seed={self._seed}'}{rank})"

    def __copy__(self) -> NamedStream:
        return self

    def __deepcopy__(self, memo: object) -> NamedStream:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        origin = (
            process_seed.count_child_and_make_origin()
            if is_pickling_for_spawn()
            else process_seed.current_origin().make_child_origin()
        )
        return _unpickle_stream, (self.key, process_seed.current_streams_seed(), origin)


process_streams: dict[StreamKey, NamedStream] = {}
"""Every stream of this process."""


def get_or_make_stream(key: StreamKey) -> NamedStream:
    """Return the stream of this process with this name, rank and seed; make it if there is none."""
    return process_streams.setdefault(key, NamedStream(key))


def _unpickle_stream(key: StreamKey, sender_seed: int | None, sender_origin: process_seed.ProcessOrigin) -> NamedStream:
    """Unpickle a stream. Sets the seed of all streams to the sender's if this process has none."""
    process_seed.adopt_streams_seed_if_none(sender_seed, sender_origin)
    return get_or_make_stream(key)


def _unpickle_generator(stream: NamedStream, kind_name: str) -> Any:
    """Unpickle a generator in a spawned process: as the one that this process's stream has in its place."""
    kind = find_generator_kind(kind_name)
    assert kind is not None
    return stream._get_or_make_generator(kind)


def _reset_streams_in_forked_child() -> None:
    for named_stream in process_streams.values():
        named_stream.reset_in_forked_child()


os.register_at_fork(
    after_in_child=_reset_streams_in_forked_child
)  # after the hook of process_seed, which this one reads


def make_unseeded_error(named_stream: NamedStream) -> SeedError:
    """The error for drawing before there is a seed."""
    hint = f"Call seed_everything(seed) first, or pass one: stream({named_stream.name!r}, seed=0)."
    if process_seed.read_dataloader_worker_seed() is not None or process_seed.read_multiprocessing_identity():
        hint += " A spawned process has no seed unless it is given a stream of its parent (by pickle)."
    return SeedError(f"{named_stream!r}: no seed is in force.", hint)


def _name_device_with_index(device: Device) -> str:
    """ "cpu", "cuda:0": with the index of the device in use where none was given."""
    import torch

    if device.type == "cpu":
        return "cpu"
    current = getattr(getattr(torch, device.type, None), "current_device", lambda: 0)
    return f"{device.type}:{current() if device.index is None else device.index}"


def _is_accelerator_kind(kind_name: str) -> bool:
    return kind_name.startswith("torch/") and kind_name != "torch/cpu"


def stream(name: str, *, seed: int | None = None, rank: Rank = "same") -> NamedStream:
    """The random stream called `name`: generators of its own, which no other draw of the program moves.

        augment = samerun.stream("augment")
        augment.python.random()                                  # random.Random
        augment.numpy.normal(size=3)                             # numpy.random.Generator
        torch.rand(3, generator=augment.torch)                   # torch.Generator, on the CPU
        torch.rand(3, device="cuda", generator=augment.torch_on("cuda"))

    Each generator is started from a hash of the seed in force (`seed_everything`), the name and its kind. It
    is made when it is first used; NumPy and torch are not imported before. Drawing from one moves no other,
    nor the global generators; a new one moves none of those that were there. `stream(name).numpy` is the way
    to a seeded `numpy.random.Generator`.

    The same name is the same object everywhere in a process. `seed_everything` starts all streams again, in
    place. `get_rng_state`, `state_dict`, `isolate_rng` and `checkpoint` treat them like the global
    generators. Not so what NumPy's `spawn()` and `SeedSequence` have given away.

    name: a string that is not empty. Keep it: another name is another stream.
    seed: a whole number from 0 to 2**64-1, in the place of the seed in force: `stream(name, seed=3)` draws
    what `stream(name)` draws after `seed_everything(3)`. Other seeds and ranks are other streams; all stay until
    the process ends, so a stream for each sample is too many.
    rank: "same" (default): all ranks of a distributed run draw the same, as they do after `seed_everything`.
    Right for all that ranks must agree on: order, initial weights. "distinct": each rank draws its own, for
    augmentation and noise. The rank is torch.distributed's if it is initialised, else RANK of the environment,
    else 0, at the first draw.

    In other processes, where nothing was seeded anew, a stream starts from a beginning of its own:

    - In a DataLoader worker from the worker's seed, which differs from worker to worker and epoch to epoch.
      The loader draws it from its `generator`, or torch's global one: pass `generator=stream("loader").torch`.
    - In other children by their number, in the order in which they were started.
    - A spawned child knows no seed: give it the stream, by pickle, as a dataset's attribute for one, and it
      brings the seed with it. So does one of the stream's generators. Sent by other ways than at the start of
      a process, or pickled to a file, a generator is a plain copy, position included.

    A child that calls `seed_everything` draws what its parent would with that seed.

    Raises SeedError for an invalid name, seed or rank; if no seed is in force and none is given; for a
    "distinct" stream that was drawn from before the rank was known.
    """
    if not isinstance(name, str) or not name:
        hint = 'Pass what the numbers are for, such as stream("augment").'
        raise SeedError(f"stream(name={name!r}): a name is a string that is not empty.", hint)
    if rank not in ("same", "distinct"):
        hint = '"same": all ranks draw the same. "distinct": each rank draws its own.'
        raise SeedError(f'stream({name!r}, rank={rank!r}): rank is "same" or "distinct".', hint)
    found = get_or_make_stream((name, rank, None if seed is None else validate_seed(seed, "stream")))
    if seed is None and process_seed.current_streams_seed() is None:
        raise make_unseeded_error(found)
    return found

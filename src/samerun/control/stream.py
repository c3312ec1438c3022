"""Named random streams: each draws from generators of its own, which nothing else moves."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any, Literal

from samerun.base.errors import SeedError
from samerun.control import place, process_seed
from samerun.control.generators import NUMPY, PYTHON, Kind, kind_named, torch_kind
from samerun.control.seeds.derive import checked, sub_seed
from samerun.control.travelling import spawning

if TYPE_CHECKING:
    import random

    from numpy.random import Generator as NumpyGenerator
    from torch import Generator as TorchGenerator
    from torch import device as Device

Rank = Literal["same", "distinct"]
Key = tuple[str, Rank, int | None]


class Stream:
    """What `stream()` gives: generators of Python, NumPy and torch, each made when it is first asked for.

    Pickled, it travels as its name and seed, not with its position: see `stream()` for what other processes
    get. A copy is the stream itself.
    """

    def __init__(self, key: Key) -> None:
        self.key = key
        self.name, self._rank, self._seed = key
        self.generators: dict[str, tuple[Kind, Any]] = {}
        self.waiting: dict[str, Any] = {}  # states of generators that are not made yet
        self.drawn_as: tuple[int, str] | None = None  # rank and place that the generators started from

    @property
    def python(self) -> random.Random:
        """The stream's `random.Random`."""
        generator: random.Random = self._generator(PYTHON)
        return generator

    @property
    def numpy(self) -> NumpyGenerator:
        """The stream's `numpy.random.Generator`, on PCG64. Imports NumPy."""
        generator: NumpyGenerator = self._generator(NUMPY)
        return generator

    @property
    def torch(self) -> TorchGenerator:
        """The stream's `torch.Generator` on the CPU. Imports torch."""
        generator: TorchGenerator = self._generator(torch_kind("cpu"))
        return generator

    def torch_on(self, device: Device | str) -> TorchGenerator:
        """The stream's `torch.Generator` on `device` ("cpu", "cuda", "cuda:1", ...). Imports torch.

        Devices of one kind start from the same seed, so that ranks on different devices draw the same.
        Raises SeedError for a device that torch has not got here.
        """
        import torch

        try:
            generator: TorchGenerator = self._generator(torch_kind(_full_name(torch.device(device))))
        except (RuntimeError, AssertionError, TypeError) as error:
            reason = (str(error).strip() or type(error).__name__).splitlines()[0].partition(". ")[0]
            raise SeedError(
                f"{self!r}.torch_on({str(device)!r}): torch gives no generator for this device: {reason}",
                "Pass a device that this machine has, such as 'cpu'.",
            ) from error
        return generator

    def restart(self) -> None:
        """Start every generator again, in place, as what this process is now."""
        self.waiting.clear()
        if self._own_seed() is None:
            self.generators.clear()  # back to before the first seeding: there is nothing to draw from
        self.drawn_as = self._now() if self.generators else None
        self._start_all()

    def put_back(self, states: dict[str, tuple[Kind, Any]], rank: int | None = None) -> None:
        """Give each generator its state; the others start again. One that is not made yet gets it when it is.

        rank: the one that the states were taken at; it counts while this process does not know its own.
        """
        before = self.drawn_as or (None if rank is None else (rank, ""))
        held = {name: self.generators.pop(name) for name in states if name in self.generators}
        self.restart()
        self.generators.update(held)
        if states:
            self.drawn_as = before  # for _now(): the rank in case of doubt
            self.drawn_as = self._now()
        for kind, state in states.values():
            if kind.name in held or kind.usable():
                kind.set_state(self._generator(kind), state)
            else:
                self.waiting[kind.name] = state

    def in_forked_child(self) -> None:
        """Leave the parent's generators behind: a child that kept them would draw what its siblings draw."""
        self.waiting.clear()
        self.generators = {name: one for name, one in self.generators.items() if not _on_device(name)}
        if self.drawn_as is not None:
            self.drawn_as = (self.drawn_as[0], process_seed.origin().here())
            self._start_all()

    def _start_all(self) -> None:
        for kind, generator in self.generators.values():
            kind.start(generator, self._seed_of(kind))

    def _generator(self, kind: Kind) -> Any:
        self._settle()
        if kind.name not in self.generators:
            generator = kind.make(self._seed_of(kind))
            generator.home = (_generator_of, (self, kind.name))
            if kind.name in self.waiting:
                try:
                    kind.set_state(generator, self.waiting[kind.name])
                except Exception as error:
                    hint = "The state is of another version of the library, or it is damaged."
                    raise SeedError(f"{self!r}: {kind.name} did not take its state: {error}", hint) from error
                del self.waiting[kind.name]
            self.generators[kind.name] = (kind, generator)
        return self.generators[kind.name][1]

    def _settle(self) -> None:
        """See to it that the generators are those of this process: of its rank and its place."""
        now = self._now()
        if self.drawn_as == now:
            return
        if self.drawn_as is None or not (self.generators or self.waiting):
            self.drawn_as = now
        elif self.drawn_as[1] != now[1]:
            self.restart()
        else:
            raise SeedError(
                f"{self!r}: it was drawn from when this process was rank {self.drawn_as[0]}, which is rank"
                f" {now[0]} now.",
                "Draw from it after init_process_group() only, or set RANK in the environment before.",
            )

    def _now(self) -> tuple[int, str]:
        rank = 0
        if self._rank == "distinct":
            before = None if self.drawn_as is None else self.drawn_as[0]
            known = (place.known_rank(), process_seed.origin().rank, before)
            rank = next((one for one in known if one is not None), 0)
        return rank, process_seed.origin().here()

    def _own_seed(self) -> int | None:
        return process_seed.seed() if self._seed is None else sub_seed(self._seed, "streams")

    def _seed_of(self, kind: Kind) -> int:
        assert self.drawn_as is not None
        rank, here = self.drawn_as
        seed = self._own_seed()
        if seed is None:
            raise _unseeded(self)
        # As a list in JSON, no two of these read the same. Devices of a kind share a seed: the index goes.
        parts = [self.name, rank if self._rank == "distinct" else None, here, kind.name.partition(":")[0]]
        return sub_seed(seed, json.dumps(parts))

    def __repr__(self) -> str:
        rank = "" if self._rank == "same" else f", rank={self._rank!r}"
        return f"stream({self.name!r}{'' if self._seed is None else f', seed={self._seed}'}{rank})"

    def __copy__(self) -> Stream:
        return self

    def __deepcopy__(self, memo: object) -> Stream:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        origin = process_seed.for_spawned_child() if spawning() else process_seed.origin().handed_on()
        return _arrived, (self.key, process_seed.seed(), origin)


streams: dict[Key, Stream] = {}


def stream(name: str, *, seed: int | None = None, rank: Rank = "same") -> Stream:
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
    what `stream(name)` draws after `seed_everything(3)`. Other seeds and ranks are other streams.
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

    Raises SeedError for a name, seed or rank that is none; if no seed is in force and none is given; for a
    "distinct" stream that was drawn from before the rank was known.
    """
    if not isinstance(name, str) or not name:
        hint = 'Pass what the numbers are for, such as stream("augment").'
        raise SeedError(f"stream(name={name!r}): a name is a string that is not empty.", hint)
    if rank not in ("same", "distinct"):
        hint = '"same": all ranks draw the same. "distinct": each rank draws its own.'
        raise SeedError(f'stream({name!r}, rank={rank!r}): rank is "same" or "distinct".', hint)
    asked = stream_with((name, rank, None if seed is None else checked(seed, "stream")))
    if seed is None and process_seed.seed() is None:
        raise _unseeded(asked)
    return asked


def stream_with(key: Key) -> Stream:
    """The stream of this process with this name, rank and seed."""
    return streams.setdefault(key, Stream(key))


def _arrived(key: Key, seed: int | None, origin: place.Origin) -> Stream:
    """A stream that was pickled. It brings its seed if this process has none."""
    process_seed.adopt(seed, origin)
    return stream_with(key)


def _generator_of(stream: Stream, name: str) -> Any:
    """A generator that was pickled for a spawned process: what this process's stream has in its place."""
    kind = kind_named(name)
    assert kind is not None
    return stream._generator(kind)


def _in_forked_child() -> None:
    for one in streams.values():
        one.in_forked_child()


os.register_at_fork(after_in_child=_in_forked_child)  # after that of process_seed


def _unseeded(asked: Stream) -> SeedError:
    hint = f"Call seed_everything(seed) first, or pass one: stream({asked.name!r}, seed=0)."
    if place.worker_seed() is not None or place.process_identity():
        hint += " A spawned process has no seed unless it is given a stream of its parent (by pickle)."
    return SeedError(f"{asked!r}: no seed is in force.", hint)


def _full_name(device: Device) -> str:
    """ "cpu", "cuda:0": with the index of the device in use where none was given."""
    import torch

    if device.type == "cpu":
        return "cpu"
    current = getattr(getattr(torch, device.type, None), "current_device", lambda: 0)
    return f"{device.type}:{current() if device.index is None else device.index}"


def _on_device(kind: str) -> bool:
    return kind.startswith("torch/") and kind != "torch/cpu"

"""One named random stream, and all of this process."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any, Literal

from samerun.base.errors import SeedError
from samerun.control import place, process_seed
from samerun.control.generators import NUMPY, PYTHON, Kind, kind_named, torch_kind
from samerun.control.seed_derivation import sub_seed
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
            raise unseeded(self)
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


def unseeded(asked: Stream) -> SeedError:
    """The error for drawing before there is a seed."""
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

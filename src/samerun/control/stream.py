"""Named random streams: each draws from generators of its own, which nothing else moves."""

from __future__ import annotations

from samerun.base.errors import SeedError
from samerun.control import process_seed
from samerun.control.named_stream import Rank, Stream, stream_with, unseeded
from samerun.control.seed_derivation import checked


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
        raise unseeded(asked)
    return asked

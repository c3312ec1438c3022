"""Seed every random generator of a process. Here too: the other verbs, for `import samerun`."""

from __future__ import annotations

import logging
import os

from samerun.base.errors import SeedError
from samerun.control.isolation import Isolation, isolate_rng
from samerun.control.seed_derivation import checked
from samerun.control.snapshot import RNGState, get_rng_state, set_rng_state
from samerun.control.sources import present_sources, put_in_force, register_rng, seed_sources, unregister_rng

__all__ = [
    "Isolation",
    "RNGState",
    "SeedError",
    "get_rng_state",
    "isolate_rng",
    "register_rng",
    "seed_everything",
    "set_rng_state",
    "unregister_rng",
]

_log = logging.getLogger("samerun")


def seed_everything(seed: int | None) -> int:
    """Seed Python's `random`, NumPy's global generator, torch on every device, and more; return the seed.

    `seed`: a whole number from 0 to 2**64-1, or None: then one is drawn from the system, logged (log
    "samerun", level INFO) and returned. Each generator gets a seed of its own, a hash of `seed` and its name.

    Nothing is imported and no device is started. The seed stays in force: a library imported later is seeded
    as its import ends, a generator registered later (`register_rng`) as it is registered. Call it again to
    start the streams again. It reaches the global generators of this process: not
    `numpy.random.default_rng()` or `torch.Generator()` objects, which take a seed when made, nor processes
    that start afterwards.

    Raises SeedError (a ValueError) for anything else: bool, float, str, a number out of range.
    """
    if seed is None:
        chosen = int.from_bytes(os.urandom(8), "little")
        _log.info("seed_everything(None) drew %d; seed_everything(%d) gives this run again", chosen, chosen)
    else:
        chosen = checked(seed, "seed_everything")
    put_in_force(chosen)
    seed_sources(chosen, present_sources())
    return chosen

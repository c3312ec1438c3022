"""The random generators of this process: seed all of them, and register further ones."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable
from types import ModuleType
from typing import Any

from samerun.base.errors import SeedError
from samerun.base.hooks import PostImportHooks
from samerun.control.random_source import RandomSource, derive_seed, validate_seed
from samerun.control.seeds.table import SOURCES

_log = logging.getLogger("samerun")
_registered: dict[str, RandomSource] = {}
_in_force: int | None = None


def all_random_sources() -> tuple[RandomSource, ...]:
    """Every source that samerun knows, available or not: the table's, then the registered ones, in order."""
    return (*SOURCES, *_registered.values())


def available_random_sources() -> list[RandomSource]:
    """The sources that can be seeded in this process now. Imports nothing."""
    return [source for source in all_random_sources() if source.available()]


def seed_in_force() -> int | None:
    """The seed from which sources imported later derive theirs; None before the first seeding."""
    return _in_force


def set_seed_in_force(seed: int | None) -> None:
    """Have sources that are imported or registered later derive their seed from `seed`. Seeds nothing now."""
    global _in_force
    _in_force = seed
    if seed is not None:
        _import_hook.install()


def seed_random_sources(seed: int, sources: Iterable[RandomSource]) -> None:
    """Give each source its own seed, derived from `seed` and its name."""
    for source in sources:
        source.seed(derive_seed(seed, source.name))


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
        chosen = validate_seed(seed, "seed_everything")
    set_seed_in_force(chosen)
    seed_random_sources(chosen, available_random_sources())
    return chosen


def register_rng(
    name: str,
    *,
    seed: Callable[[int], object],
    get_state: Callable[[], Any],
    set_state: Callable[[Any], object],
) -> None:
    """Have samerun seed, save, restore and isolate a global generator of your own, or of a library it lacks.

    `name`: a name that no other source has; the seed is derived from it, so keep it. `seed(n)` is called with
    a whole number from 0 to 2**64-1. `get_state()` returns a copy of the state, which `set_state` takes back;
    plain values (numbers, strings, lists, CPU tensors) keep checkpoints loadable. If a seed is in force
    already (`seed_everything` was called), the generator is seeded now.

    Raises SeedError if `name` is taken, empty or not a string.
    """
    if not isinstance(name, str) or not name:
        raise SeedError(f"register_rng(name={name!r}): a name is a string that is not empty.")
    if name in _registered:
        hint = f"To replace it, call unregister_rng({name!r}) first."
        raise SeedError(f"register_rng(name={name!r}): this name is registered already.", hint)
    if any(source.name == name for source in SOURCES):
        hint = "Choose another name, such as that of your library."
        raise SeedError(f"register_rng(name={name!r}): samerun has a source of this name itself.", hint)
    source = RandomSource(name, "", lambda: True, _discard_result(seed), get_state, _discard_result(set_state))
    if _in_force is not None:
        seed_random_sources(_in_force, [source])
    _registered[name] = source


def unregister_rng(name: str) -> None:
    """Forget a generator that `register_rng` added. Raises SeedError if none is registered under this name."""
    if name not in _registered:
        hint = f"Registered are: {', '.join(_registered) or 'none'}."
        raise SeedError(f"unregister_rng(name={name!r}): no generator of this name is registered.", hint)
    del _registered[name]


def _discard_result(function: Callable[[Any], object]) -> Callable[[Any], None]:
    """Wrap a function so that it returns None."""

    def call(argument: Any) -> None:
        function(argument)

    return call


def _seed_sources_of_imported(module: ModuleType) -> None:
    """Seed the sources that the import of `module` has just brought."""
    if _in_force is not None:
        seed_random_sources(
            _in_force, [source for source in available_random_sources() if source.module == module.__name__]
        )


_import_hook = PostImportHooks()
for _name in sorted({source.module for source in SOURCES if source.module}):
    _import_hook.call_now_or_after_import(_name, _seed_sources_of_imported)

"""The random generators of this process, the table's and the user's, and the seed in force."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from types import ModuleType
from typing import Any

from samerun.base.after_import import AfterImport
from samerun.base.errors import SeedError
from samerun.control.seed_derivation import sub_seed
from samerun.control.seeds.source import Source
from samerun.control.seeds.table import SOURCES

_registered: dict[str, Source] = {}
_in_force: int | None = None


def every_source() -> tuple[Source, ...]:
    """All that samerun knows, present or not: the table's, then the registered ones, in order."""
    return (*SOURCES, *_registered.values())


def present_sources() -> list[Source]:
    """Those that this process has now. Imports nothing."""
    return [source for source in every_source() if source.available()]


def seed_in_force() -> int | None:
    """The seed that sources which arrive from now on get theirs from; None before the first seeding."""
    return _in_force


def put_in_force(seed: int | None) -> None:
    global _in_force
    _in_force = seed
    if seed is not None:
        _arrivals.install()


def seed_sources(seed: int, sources: Iterable[Source]) -> None:
    """Give each source its own seed, derived from `seed` and its name."""
    for source in sources:
        source.seed(sub_seed(seed, source.name))


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

    Raises SeedError if `name` is taken, empty or no string.
    """
    if not isinstance(name, str) or not name:
        raise SeedError(f"register_rng(name={name!r}): a name is a string that is not empty.")
    if name in _registered:
        hint = f"To replace it, call unregister_rng({name!r}) first."
        raise SeedError(f"register_rng(name={name!r}): this name is registered already.", hint)
    if any(source.name == name for source in SOURCES):
        hint = "Choose another name, such as that of your library."
        raise SeedError(f"register_rng(name={name!r}): samerun has a source of this name itself.", hint)
    source = Source(name, "", lambda: True, _quietly(seed), get_state, _quietly(set_state))
    if _in_force is not None:
        seed_sources(_in_force, [source])
    _registered[name] = source


def unregister_rng(name: str) -> None:
    """Forget a generator that `register_rng` added. Raises SeedError if there is none of this name."""
    if name not in _registered:
        hint = f"Registered are: {', '.join(_registered) or 'none'}."
        raise SeedError(f"unregister_rng(name={name!r}): no generator of this name is registered.", hint)
    del _registered[name]


def _quietly(call: Callable[[Any], object]) -> Callable[[Any], None]:
    def quiet(value: Any) -> None:
        call(value)

    return quiet


def _arrived(module: ModuleType) -> None:
    """Seed the sources that the import of `module` has just brought."""
    if _in_force is not None:
        seed_sources(_in_force, [one for one in present_sources() if one.module == module.__name__])


_arrivals = AfterImport()
for _name in sorted({one.module for one in SOURCES if one.module}):
    _arrivals.add(_name, _arrived)

"""The seed from which this process derives its named streams, and where that seed comes from."""

from __future__ import annotations

import os

from samerun.control.place import Origin, worker_seed

_seed: int | None = None
_origin = Origin()
_children = 0


def seed() -> int | None:
    """The seed of all named streams; None if there is none yet."""
    return _seed


def origin() -> Origin:
    """How this process came to its seed."""
    return _origin


def put(value: int | None, place: str = "") -> None:
    """Derive from `value` from now on, as a process at `place`; "": one that was seeded itself."""
    global _seed, _origin
    _seed, _origin = value, Origin(place, worker_seed(), rank=_origin.rank)


def put_origin(value: int | None, origin: Origin) -> None:
    """Derive from `value` from now on, as a process that came to it as `origin` says."""
    global _seed, _origin
    _seed, _origin = value, origin


def for_spawned_child() -> Origin:
    """The origin to be sent to a child that is being spawned."""
    global _children
    _children += 1
    return _origin.handed_on(_children)


def adopt(value: int | None, given: Origin) -> None:
    """Take over the seed of another process, if this one has none."""
    global _seed, _origin
    if _seed is None and (value is not None or _origin == Origin()):
        _seed, _origin = value, given


def _before_fork() -> None:
    global _children
    _children += 1


def _in_forked_child() -> None:
    global _children, _origin
    _children, _origin = 0, _origin.handed_on(_children)


os.register_at_fork(before=_before_fork, after_in_child=_in_forked_child)

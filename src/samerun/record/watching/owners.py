"""Who should have given a seed: the caller of an object that makes its generator when it is first needed."""

from __future__ import annotations

import sys
from types import FrameType

from samerun.record.watching import sites


def place_of_owner() -> tuple[str, int, bool] | None:
    """The line that calls an object whose method makes a generator from a seed it was not given.

    An object that makes its generator in a method of its own (`seed`, `reset`), out of a parameter that
    was left None, offers to be seeded: what is missing is that call, and the line that is to be mended is
    the one that uses the object unseeded. None where the generator is made in the open or in `__init__`.
    """
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and sites.kind_of(frame.f_code) != sites.USER:
        frame = frame.f_back
    if frame is None or frame.f_code.co_name == "__init__" or not forwards_none(frame):
        return None
    names = frame.f_code.co_varnames
    owner = frame.f_locals.get(names[0]) if names and names[0] == "self" else None
    if owner is None:
        return None
    while frame is not None and frame.f_code.co_varnames[:1] == ("self",) and frame.f_locals.get("self") is owner:
        frame = frame.f_back
    while frame is not None and sites.kind_of(frame.f_code) != sites.USER:
        frame = frame.f_back
    return (frame.f_code.co_filename, frame.f_lineno, True) if frame is not None else None


def forwards_none(frame: FrameType) -> bool:
    """Has the function a parameter for a seed that was left None?"""
    code = frame.f_code
    count = code.co_argcount + code.co_kwonlyargcount
    return any(
        ("seed" in name or name in ("rng", "random_state", "generator")) and frame.f_locals.get(name, 0) is None
        for name in code.co_varnames[:count]
    )

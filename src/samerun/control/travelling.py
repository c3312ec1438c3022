"""Generators that reach a spawned process as its own stream, not as a copy of the parent's.

A copy would draw in every DataLoader worker, and in every epoch, what it drew in the others. Pickled or copied
otherwise, such a generator is a plain one, position included.
"""

from __future__ import annotations

import functools
import random
import sys
import types
from typing import Any


class _Travelling:
    """Mixed into a class of generators."""

    home: tuple[Any, ...]
    """A function and its arguments, which give this generator in another process."""

    def __reduce__(self) -> Any:
        if spawning():
            return self.home
        if isinstance(self, random.Random):
            return random.Random, (), self.getstate()
        return super().__reduce__()


@functools.cache
def travelling(kind: type) -> Any:
    """The class `kind` whose instances travel; set `home` on each."""
    return types.new_class(kind.__name__, (_Travelling, kind), {})


def spawning() -> bool:
    """Whether a process is being spawned, and this is pickled for it."""
    context: Any = sys.modules.get("multiprocessing.context")
    return context is not None and context.get_spawning_popen() is not None

"""Numbers for objects of the program, which are the same in every run where addresses are not."""

from __future__ import annotations

import itertools
from typing import Any
from weakref import WeakKeyDictionary


class ObjectNumbers:
    """Numbers objects in the order in which they are first asked about; -1 for what cannot be referenced weakly."""

    def __init__(self) -> None:
        self.known: WeakKeyDictionary[Any, int] = WeakKeyDictionary()
        self.next = itertools.count()

    def get_or_assign_number(self, item: Any) -> int:
        try:
            number = self.known.get(item)
            if number is None:
                number = self.known[item] = next(self.next)
        except TypeError:
            return -1
        return number

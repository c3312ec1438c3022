"""Other people's loops. An adapter owns no logic: it says when a receipt begins and ends, and names points."""

from __future__ import annotations

import os
from contextlib import AbstractContextManager
from typing import Any

import samerun


class OpenReceipt:
    """A receipt that is begun in one callback and ended in another.

    `begin()` and `end()` may be called in any number and order; a receipt is written once for each pair.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = path
        self._block: AbstractContextManager[None] | None = None

    def begin(self) -> None:
        if self._block is None:
            self._block = samerun.receipt(self.path)
            self._block.__enter__()

    def end(self, error: BaseException | None = None) -> None:
        """`error`: what ended the training early; the receipt says so."""
        block, self._block = self._block, None
        if block is None:
            return
        if error is None:
            block.__exit__(None, None, None)
            return
        try:
            block.__exit__(type(error), error, error.__traceback__)
        except BaseException as raised:  # the block hands the error on; the loop that called us raises it itself
            if raised is not error:
                raise

    def mark(self, name: str, value: Any = None) -> None:
        if self._block is not None:
            samerun.mark(name, value)

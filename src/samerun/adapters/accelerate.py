"""A tracker for accelerate: `Accelerator(log_with=ReceiptTracker("run.json"))`."""

from __future__ import annotations

import os
from typing import Any

from accelerate.tracking import GeneralTracker

from samerun.adapters import OpenReceipt


class ReceiptTracker(GeneralTracker):  # type: ignore[misc]
    """Writes a receipt of what happens between `init_trackers` and `end_training`; `log` makes marks."""

    name = "samerun"
    requires_logging_directory = False

    def __init__(self, path: str | os.PathLike[str]) -> None:
        super().__init__()
        self._receipt = OpenReceipt(path)

    @property
    def tracker(self) -> OpenReceipt:
        return self._receipt

    def start(self) -> None:
        self._receipt.begin()

    def store_init_configuration(self, values: dict[str, Any]) -> None:
        self._receipt.begin()

    def log(self, values: dict[str, Any], step: int | None = None, **kwargs: Any) -> None:
        self._receipt.mark(f"step {step}" if step is not None else "log", values)

    def finish(self) -> None:
        self._receipt.end()

"""A callback for the Trainer of transformers: `Trainer(callbacks=[ReceiptCallback("run.json")])`."""

from __future__ import annotations

import os
from typing import Any

from transformers import TrainerCallback

from samerun.adapters import OpenReceipt


class ReceiptCallback(TrainerCallback):  # type: ignore[misc]
    """Writes a receipt of `train` to `path`, with a mark at the end of each epoch.

    A training that ends with an exception writes none: the Trainer tells its callbacks nothing of it.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._receipt = OpenReceipt(path)

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._receipt.begin()

    def on_epoch_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._receipt.mark(f"epoch {round(state.epoch or 0)}", kwargs.get("model"))

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._receipt.end()

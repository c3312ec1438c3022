"""A callback for Lightning: `Trainer(callbacks=[ReceiptCallback("run.json")])`."""

from __future__ import annotations

import os
from typing import Any

try:
    from lightning.pytorch.callbacks import Callback
except ImportError:
    from pytorch_lightning.callbacks import Callback

from samerun.adapters import OpenReceipt


class ReceiptCallback(Callback):  # type: ignore[misc]
    """Writes a receipt of `fit` to `path`, with a mark at the end of each epoch."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._receipt = OpenReceipt(path)

    def on_fit_start(self, trainer: Any, pl_module: Any) -> None:
        self._receipt.begin()

    def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        self._receipt.mark(f"epoch {trainer.current_epoch}", pl_module)

    def on_fit_end(self, trainer: Any, pl_module: Any) -> None:
        self._receipt.end()

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        self._receipt.end(exception)

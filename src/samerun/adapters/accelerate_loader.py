"""A `samerun.data.DataLoader` for accelerate: `loader = prepare_loader(accelerator, loader)`.

`accelerator.prepare` would make a loader of torch's from its parts, whose samples are not keyed.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from accelerate.data_loader import DataLoaderShard

import samerun
from samerun.base.errors import DataError


class _KeyedShard(DataLoaderShard):  # type: ignore[misc]
    """accelerate's own loader around one of ours: it moves batches to the device and knows which is the last."""

    def __init__(self, loader: Any, device: Any) -> None:
        super().__init__(loader.dataset, device=device, batch_size=None)
        self.base_dataloader = loader
        self.dl_state_dict = loader.state_dict()

    def __iter__(self) -> Iterator[Any]:
        self.iteration = self.base_dataloader.epoch  # that of a loaded state, too
        yield from super().__iter__()

    def set_epoch(self, epoch: int) -> None:
        self.iteration = epoch
        self.base_dataloader.set_epoch(epoch)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.base_dataloader.load_state_dict(state)
        self.dl_state_dict = self.base_dataloader.state_dict()


def prepare_loader(accelerator: Any, loader: Any) -> Any:
    """What `accelerator.prepare(loader)` is for other loaders; `prepare` passes it on as it is.

        loader = prepare_loader(accelerator, samerun.data.DataLoader(dataset, 32, shuffle=True, shard=True))

    Raises DataError if the loader is none of samerun's, or is not shared out to the ranks that there are.
    """
    if not isinstance(loader, samerun.data.DataLoader):
        hint = "Pass a samerun.data.DataLoader; others are for accelerator.prepare()."
        raise DataError(f"prepare_loader(): the loader is a {type(loader).__module__}.{type(loader).__name__}.", hint)
    ranks = accelerator.num_processes
    if loader.ranks != ranks:
        raise DataError(
            f"prepare_loader(): the loader is shared out to {loader.ranks} ranks, and accelerate has {ranks}.",
            "Make it with shard=True when the Accelerator is there.",
        )
    prepared = _KeyedShard(loader, accelerator.device if accelerator.device_placement else None)
    prepared._is_accelerate_prepared = True
    accelerator._dataloaders.append(prepared)
    return prepared

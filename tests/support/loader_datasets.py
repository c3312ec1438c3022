"""Datasets for the tests of the loader; in a file of its own, so that spawned workers find them."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch.utils.data import Dataset, IterableDataset, get_worker_info

import samerun


def drawn() -> list[float]:
    """Numbers of all three generators; an odd number of normals, so that one is kept for the next call."""
    return [random.random(), random.gauss(0, 1), np.random.rand(), np.random.randn(), torch.rand(()).item()]


class Drawing(Dataset[torch.Tensor]):
    """Sample i is i and what the global generators give."""

    def __init__(self, n: int = 53) -> None:
        self.n = n

    def __len__(self) -> int:
        return self.n

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.tensor([index, *drawn()], dtype=torch.float64)


class DrawingFromStream(Drawing):
    def __getitem__(self, index: int) -> torch.Tensor:
        stream = samerun.stream("augment")
        values = [stream.numpy.random(), stream.python.random(), torch.rand((), generator=stream.torch).item()]
        return torch.tensor([index, *values], dtype=torch.float64)


class Batched(Drawing):
    """Also gives several samples at once, as `torch.utils.data.Subset` does."""

    def __getitems__(self, indices: list[int]) -> list[torch.Tensor]:
        random.random()
        return [self[index] for index in indices]


class OwnGenerator(Drawing):
    def __init__(self, n: int = 53) -> None:
        super().__init__(n)
        self.split = np.random.default_rng(3)  # not drawn from while loading
        self.transforms = [Noise()]

    def __getitem__(self, index: int) -> torch.Tensor:
        return super().__getitem__(index) + self.transforms[0]()


class Noise:
    def __init__(self) -> None:
        self.rng = np.random.default_rng(1)

    def __call__(self) -> float:
        return float(self.rng.random())


class Failing(Drawing):
    def __getitem__(self, index: int) -> torch.Tensor:
        value = super().__getitem__(index)
        if index == 17:
            raise KeyError(f"no such file: drew {value[1].item()}")
        return value


class WorkerAsks(Drawing):
    """Its samples say whether `get_worker_info().dataset` is the dataset itself."""

    def __getitem__(self, index: int) -> torch.Tensor:
        info = get_worker_info()
        return torch.tensor(float(info is None or type(info.dataset) is WorkerAsks))


def mixing(samples: list[torch.Tensor]) -> torch.Tensor:
    """A `collate_fn` that draws."""
    return torch.stack(samples) + sum(drawn())


class Stream(IterableDataset[torch.Tensor]):
    """Shards itself by `get_worker_info()`, and draws for every sample."""

    def __init__(self, n: int = 50) -> None:
        self.n = n

    def __iter__(self) -> Iterator[torch.Tensor]:
        info = get_worker_info()
        first, step = (0, 1) if info is None else (info.id, info.num_workers)
        for index in range(first, self.n, step):
            yield torch.tensor([index, *drawn()], dtype=torch.float64)


class Unsharded(Stream):
    def __iter__(self) -> Iterator[torch.Tensor]:
        for index in range(self.n):
            yield torch.tensor([index, *drawn()], dtype=torch.float64)


class Keeping(Stream):
    """Says where it stands, and goes on from there."""

    read: list[int] = []

    def __init__(self, n: int = 50) -> None:
        super().__init__(n)
        self.given = 0

    def __iter__(self) -> Iterator[torch.Tensor]:
        info = get_worker_info()
        first, step = (0, 1) if info is None else (info.id, info.num_workers)
        for index in range(first + self.given * step, self.n, step):
            self.given += 1
            self.read.append(index)
            yield torch.tensor([index, *drawn()], dtype=torch.float64)

    def state_dict(self) -> dict[str, int]:
        return {"given": self.given}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.given = state["given"]


class KeepingIterator(Stream):
    """What its `__iter__` returns says where it stands."""

    def __iter__(self) -> Any:
        return _Walk(Keeping(self.n))


class _Walk:
    def __init__(self, dataset: Keeping) -> None:
        self._dataset, self._samples = dataset, iter(dataset)

    def __iter__(self) -> Any:
        return self

    def __next__(self) -> torch.Tensor:
        return next(self._samples)

    def state_dict(self) -> dict[str, int]:
        return self._dataset.state_dict()

    def load_state_dict(self, state: dict[str, int]) -> None:
        self._dataset.load_state_dict(state)
        self._samples = iter(self._dataset)


def batches(loader: Any) -> list[bytes]:
    """Every bit of every batch."""
    return [batch.numpy().tobytes() for batch in loader]

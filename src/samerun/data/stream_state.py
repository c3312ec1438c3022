"""Iterable datasets that can say where they stand: `state_dict` and `load_state_dict`, as torchdata asks for them.

Either the dataset has the two, or what its `__iter__` returns has.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any, cast

from samerun.base.errors import DataError


def own_dataset(dataset: Any, shards: int) -> Any:
    """The dataset to read a shard from: a copy if it keeps a position, for shards are read by turns."""
    if not _keeps_state(dataset):
        return dataset
    try:
        return copy.deepcopy(dataset)
    except Exception as error:
        if shards == 1:
            return dataset
        raise DataError(
            f"{type(dataset).__name__} has state_dict() and is read in {shards} parts, each from a copy of its own,"
            f" and copying it failed: {error!r}.",
            "Let it be copied (copy.deepcopy), or pass virtual_shards=1.",
        ) from error


def opened(dataset: Any, state: Any) -> Iterator[Any]:
    """An iterator over the dataset, from where `state_now` gave `state`; None: from the beginning."""
    if state is None:
        return iter(dataset)
    of, held = state
    if of == "dataset":
        dataset.load_state_dict(held)
    samples: Any = iter(dataset)
    if of == "iterator":
        samples.load_state_dict(held)
    return cast(Iterator[Any], samples)


def state_now(samples: Any, dataset: Any) -> list[Any] | None:
    """Where the dataset says it stands, copied; None if it does not say."""
    for of, one in (("iterator", getattr(samples, "rest", samples)), ("dataset", dataset)):
        if _keeps_state(one):
            return [of, copy.deepcopy(one.state_dict())]
    return None


def _keeps_state(one: Any) -> bool:
    return callable(getattr(one, "state_dict", None)) and callable(getattr(one, "load_state_dict", None))

"""Skips the tests marked ``cuda`` where there is no CUDA device."""

from __future__ import annotations

import pytest


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    needing_cuda = [item for item in items if item.get_closest_marker("cuda") is not None]
    if not needing_cuda:
        return
    import torch

    if torch.cuda.is_available():
        return
    for item in needing_cuda:
        item.add_marker(pytest.mark.skip(reason="needs a CUDA device"))

"""Skips the tests marked ``cuda`` where there is no CUDA device; gives the programs of tests the usual surroundings."""

from __future__ import annotations

import os
import signal

import pytest


def pytest_configure() -> None:
    """What a shell that runs the tests in the background, or a person with options of their own, hands down to every
    program that a test starts: a Ctrl-C that does nothing, and options for a pytest inside a test.
    """
    os.environ.pop("PYTEST_ADDOPTS", None)
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    needing_cuda = [item for item in items if item.get_closest_marker("cuda") is not None]
    if not needing_cuda:
        return
    import torch

    if torch.cuda.is_available():
        return
    for item in needing_cuda:
        item.add_marker(pytest.mark.skip(reason="needs a CUDA device"))

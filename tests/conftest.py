"""Skips the tests marked ``cuda`` where there is no CUDA device; gives the programs of tests the usual surroundings."""

from __future__ import annotations

import inspect
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
    tell_inspect_the_modules_of_frames()


def tell_inspect_the_modules_of_frames() -> None:
    """Torch's own samples look through the stack again and again. For a frame whose file no module is known to come
    from, as in the workers of xdist, `inspect` goes through all modules each time: a minute for a worker.
    """
    frame = inspect.currentframe()
    while frame is not None:
        inspect.modulesbyfile[frame.f_code.co_filename] = frame.f_globals.get("__name__", "")
        frame = frame.f_back


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    needing_cuda = [item for item in items if item.get_closest_marker("cuda") is not None]
    if not needing_cuda:
        return
    import torch

    if torch.cuda.is_available():
        return
    for item in needing_cuda:
        item.add_marker(pytest.mark.skip(reason="needs a CUDA device"))

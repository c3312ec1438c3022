"""Pins that act on torch: one thread, deterministic algorithms."""

from __future__ import annotations

from typing import Any

from samerun.record import pins
from samerun.record.watching.interceptor import Interceptor
from samerun.record.watching.recorder import Recorder


def install(recorder: Recorder, torch: Any) -> None:
    if pins.THREADS in recorder.config.pins:
        torch.set_num_threads(1)
        torch.set_num_threads = lambda number: None
    if pins.DETERMINISTIC in recorder.config.pins:
        torch.use_deterministic_algorithms(True, warn_only=True)
        torch.utils.deterministic.fill_uninitialized_memory = False


INTERCEPTOR = Interceptor("held-still", "torch", install)

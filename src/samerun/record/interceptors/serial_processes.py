"""The pin `serial` for processes that the program starts itself: one after the other."""

from __future__ import annotations

from typing import Any

from samerun.record import pins, sites
from samerun.record.interceptor import Interceptor, replace
from samerun.record.recorder import Recorder

SERIAL_SECONDS = 3.0
"""A process that waits for others goes on beside them after this."""


def install(recorder: Recorder, process: Any) -> None:
    if pins.SERIAL not in recorder.config.pins:
        return

    def starting(original: Any) -> Any:
        def start(self: Any) -> None:
            original(self)
            if sites.called_by_user():
                self.join(SERIAL_SECONDS)

        return start

    replace(process.BaseProcess, "start", starting)


INTERCEPTOR = Interceptor("serial-processes", "multiprocessing.process", install)

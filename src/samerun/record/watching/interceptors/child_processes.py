"""Processes that the program starts itself with `multiprocessing`.

With the pin `serial` they run one after the other.
"""

from __future__ import annotations

from typing import Any

from samerun.record import pins
from samerun.record.trace import format as f
from samerun.record.watching import sites
from samerun.record.watching.interceptor import Interceptor, replace
from samerun.record.watching.recorder import Recorder

SERIAL_SECONDS = 3.0
"""A process that waits for others goes on beside them after this."""


def install(recorder: Recorder, process: Any) -> None:
    serial = pins.SERIAL in recorder.config.pins

    def starting(original: Any) -> Any:
        def start(self: Any) -> None:
            own = sites.called_by_user()
            if own:
                recorder.host(f.FACT, "Process.start", user_only=True, thin=True)
            original(self)
            if serial and own:
                self.join(SERIAL_SECONDS)

        return start

    replace(process.BaseProcess, "start", starting)


INTERCEPTOR = Interceptor("child-processes", "multiprocessing.process", install)

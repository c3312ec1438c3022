"""What differs from process to process: its number, how many processors it may use, temporary names.

With the pin `entropy` the process number and temporary names are fixed.
"""

from __future__ import annotations

import itertools
from typing import Any

from samerun.record import pins
from samerun.record.trace import format as f
from samerun.record.watching import sites
from samerun.record.watching.interceptor import Interceptor, replace
from samerun.record.watching.recorder import Recorder

NUMBERS = ("getpid", "getppid")
PROCESSORS = ("cpu_count", "process_cpu_count", "sched_getaffinity", "getloadavg")


def install(recorder: Recorder, os: Any) -> None:
    """Watch the functions where the program itself calls them; the standard library needs the true numbers."""

    def asking(original: Any) -> Any:
        name = original.__name__

        def ask(*args: Any, **kwargs: Any) -> Any:
            value = original(*args, **kwargs)
            if recorder.stopped or recorder.thread.inside:
                return value
            placed = sites.host_site()
            if not placed[2] or not sites.called_by_user():
                return value
            if name in NUMBERS and recorder.pinned(pins.ENTROPY):
                value = pins.pinned_seed(f"os.{name}", 22)  # no larger than Linux has them
            recorder.host(f.FACT, f"os.{name}", value=repr(value).encode(), thin=True, placed=placed)
            return value

        return ask

    for name in (*NUMBERS, *PROCESSORS):
        replace(os, name, asking)


def install_tempfile(recorder: Recorder, tempfile: Any) -> None:
    """Temporary names are drawn from the system's entropy."""
    kind = tempfile._RandomNameSequence
    following = kind.__next__
    numbers = itertools.count()

    def __next__(self: Any) -> str:
        pinned = recorder.pinned(pins.ENTROPY)
        name: str = f"{pins.pinned_seed(f'temporary name {next(numbers)}'):08x}" if pinned else following(self)
        recorder.host(f.ENTROPY, "tempfile", value=name.encode(), user_only=True, thin=True)
        return name

    kind.__next__ = __next__


INTERCEPTOR = Interceptor("identity", "os", install)
IN_TEMPFILE = Interceptor("identity-tempfile", "tempfile", install_tempfile)

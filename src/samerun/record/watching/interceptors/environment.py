"""Environment variables the program reads."""

from __future__ import annotations

from typing import Any

from samerun.record.trace import format as f
from samerun.record.watching import sites
from samerun.record.watching.interceptor import Interceptor
from samerun.record.watching.recorder import Recorder


def install(recorder: Recorder, os: Any) -> None:
    """Wrap the one method that `environ[...]`, `environ.get` and `getenv` all come to."""
    kind = type(os.environ)
    original = kind.__getitem__

    def getitem(self: Any, key: Any) -> Any:
        try:
            value = original(self, key)
        except KeyError:
            note(key, b"")
            raise
        note(key, repr(value).encode("utf-8", "surrogatepass"))
        return value

    def note(key: Any, value: bytes) -> None:
        if recorder.stopped or recorder.thread.inside or not isinstance(key, str) or key.startswith("SAMERUN_"):
            return
        placed = sites.host_site()
        if placed[2] and not sites.asked_by_samerun():
            recorder.host(f.ENVIRONMENT, key, value=value, placed=placed, thin=True)

    getitem.__doc__ = original.__doc__
    kind.__getitem__ = getitem


INTERCEPTOR = Interceptor("environment", "os", install)

"""Directory listings, whose order the file system decides. `glob`, `os.walk` and `pathlib` come by here."""

from __future__ import annotations

import os as real_os
from typing import Any

from xxhash import xxh3_64_intdigest

from samerun.record.trace import format as f
from samerun.record.watching.interceptor import Interceptor, replace
from samerun.record.watching.recorder import Recorder


class Entries:
    """What `os.scandir` returns: an iterator, a context manager, closable."""

    def __init__(self, entries: list[Any]) -> None:
        self._entries = iter(entries)

    def __iter__(self) -> Entries:
        return self

    def __next__(self) -> Any:
        return next(self._entries)

    def __enter__(self) -> Entries:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        self._entries = iter(())


def install(recorder: Recorder, os: Any) -> None:
    order = recorder.config.listing_order

    def arrange(items: list[Any], key: Any) -> list[Any]:
        if order is not None:
            try:
                items.sort(key=key, reverse=order == "reversed" and recorder.applies("listing"))
            except TypeError:
                pass
        return items

    def note(name: str, path: Any, names: list[Any]) -> None:
        if recorder.stopped or recorder.thread.inside:
            return
        shown = "." if path is None else path if isinstance(path, (str, int)) else real_os.fsdecode(path)
        recorder.host(
            f.LISTING, name, aux=str(shown), value=repr(names).encode("utf-8", "surrogatepass"),
            inputs=xxh3_64_intdigest(repr(sorted(names, key=str)).encode("utf-8", "surrogatepass")),
            user_only=True,
        )  # fmt: skip

    def listdir_of(original: Any) -> Any:
        def listdir(path: Any = None) -> list[Any]:
            names: list[Any] = arrange(original(path), None)
            note("os.listdir", path, names)
            return names

        return listdir

    def scandir_of(original: Any) -> Any:
        def scandir(path: Any = None) -> Any:
            with original(path) as found:
                entries = arrange(list(found), lambda entry: entry.name)
            note("os.scandir", path, [entry.name for entry in entries])
            return Entries(entries)

        return scandir

    for name, make in (("listdir", listdir_of), ("scandir", scandir_of)):
        in_descriptors = getattr(os, name) in os.supports_fd
        replace(os, name, make)
        if in_descriptors:
            os.supports_fd.add(getattr(os, name))


INTERCEPTOR = Interceptor("listing", "os", install)

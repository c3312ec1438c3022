"""What a program asks about files without reading them: whether they are there, how old they are.

`pathlib` and `os.path` come by `os.stat`, except where they call the system themselves. With the pin
`stat` every file has the same times.
"""

from __future__ import annotations

import os as real_os
from typing import Any

from samerun.base.wrapping import wrap_like
from samerun.record import pins
from samerun.record.trace import format as f
from samerun.record.watching import sites
from samerun.record.watching.interceptor import Interceptor, replace
from samerun.record.watching.recorder import Recorder

SYSTEM = ("/proc/", "/sys/", "/dev/", "/usr/lib/", "/etc/")
THERE = ("exists", "lexists", "isfile", "isdir", "getsize")
TIMES = ("getmtime", "getctime", "getatime")


def install(recorder: Recorder, path: Any) -> None:
    """The functions of `os.path`."""
    pinned = pins.STAT in recorder.config.pins

    def asking(original: Any) -> Any:
        name = original.__name__

        def ask(*args: Any, **kwargs: Any) -> Any:
            value = original(*args, **kwargs)
            if pinned and name in TIMES:
                value = pins.PINNED_CLOCK_START
            note(recorder, f"os.path.{name}", args[0] if args else None, value)
            return value

        return ask

    for name in (*THERE, *TIMES):
        replace(path, name, asking)


def install_stat(recorder: Recorder, os: Any) -> None:
    """`os.stat`, by which `pathlib` goes too: what is noted is the kind, the size and the time of change."""
    pinned = pins.STAT in recorder.config.pins
    original = os.stat

    def stat(path: Any, *args: Any, **kwargs: Any) -> Any:
        if recorder.stopped or recorder.thread.inside:
            return original(path, *args, **kwargs)
        try:
            found = original(path, *args, **kwargs)
        except OSError:
            note(recorder, "os.stat", path, None)
            raise
        if not sites.called_by_user(("pathlib",)):
            return found
        if pinned:
            kept = list(found)
            kept[7:10] = [int(pins.PINNED_CLOCK_START)] * 3
            times = dict.fromkeys(("st_atime", "st_mtime", "st_ctime"), pins.PINNED_CLOCK_START)
            times.update({f"{name}_ns": int(pins.PINNED_CLOCK_START) * 10**9 for name in list(times)})
            found = os.stat_result(kept, {**{k: getattr(found, k) for k in EXTRA if hasattr(found, k)}, **times})
        note(recorder, "os.stat", path, (found.st_mode, found.st_size, found.st_mtime_ns))
        return found

    watched = wrap_like(original, stat)
    for names in (os.supports_fd, os.supports_dir_fd, os.supports_follow_symlinks):
        if original in names:
            names.add(watched)
    os.stat = watched


EXTRA = ("st_blksize", "st_blocks", "st_rdev")


def note(recorder: Recorder, name: str, path: Any, value: Any) -> None:
    if recorder.stopped or recorder.thread.inside or not isinstance(path, (str, bytes, real_os.PathLike)):
        return
    if not sites.called_by_user(("pathlib",)):
        return
    shown = real_os.fsdecode(path)
    if shown.startswith(SYSTEM):
        return
    recorder.host(f.FACT, name, aux=shown, value=repr(value).encode(), user_only=True, thin=True)


INTERCEPTOR = Interceptor("file-facts", "os", install_stat)
IN_PATH = Interceptor("file-facts-path", "posixpath", install)

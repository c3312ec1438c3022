"""The file system: files opened, directories listed, and what a program asks about files without reading them.

Files opened for reading count by path, size and content, those opened for writing as they are at the end. `glob`,
`os.walk` and `pathlib` list directories through `os.listdir` and `os.scandir`; `pathlib` and `os.path` ask through
`os.stat`, except where they call the system themselves. With the pin `stat` every file has the same times.
"""

from __future__ import annotations

import os
import stat
import sys
from typing import Any, NamedTuple

from xxhash import xxh3_64_intdigest, xxh3_128

from samerun.base import user_code
from samerun.base.wrapping import make_wrapper_of_same_type
from samerun.record import pins
from samerun.record.config import to_original_path
from samerun.record.machine_files import MACHINE_FILE, gives_random_bytes, is_machine_state_file
from samerun.record.trace import format as f
from samerun.record.watching import stack_frames
from samerun.record.watching.interceptor import Interceptor, wrap_attribute
from samerun.record.watching.recorder import NOTHING, Recorder


class ScandirIterator:
    """What `os.scandir` returns: an iterator, a context manager, closable."""

    def __init__(self, entries: list[Any]) -> None:
        self._entries = iter(entries)

    def __iter__(self) -> ScandirIterator:
        return self

    def __next__(self) -> Any:
        return next(self._entries)

    def __enter__(self) -> ScandirIterator:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        self._entries = iter(())


def sort_and_intercept_directory_listings(recorder: Recorder, os_module: Any) -> None:
    order = recorder.config.listing_order

    def sort_entries(items: list[Any], key: Any) -> list[Any]:
        if order is not None:
            try:
                items.sort(
                    key=key, reverse=order == "reversed" and recorder.current_line_is_selected_for_variation("listing")
                )
            except TypeError:
                pass
        return items

    def record_listing(name: str, path: Any, names: list[Any]) -> None:
        if recorder.stopped or recorder.thread.inside_samerun:
            return
        shown = "." if path is None else path if isinstance(path, (str, int)) else os.fsdecode(path)
        recorder.emit_host_event(
            f.LISTING, name, aux=str(shown), value=repr(names).encode("utf-8", "surrogatepass"),
            inputs=xxh3_64_intdigest(repr(sorted(names, key=str)).encode("utf-8", "surrogatepass")),
            only_at_user_code=True,
        )  # fmt: skip

    def wrap_listdir(original: Any) -> Any:
        def listdir(path: Any = None) -> list[Any]:
            names: list[Any] = sort_entries(original(path), None)
            record_listing("os.listdir", path, names)
            return names

        return listdir

    def wrap_scandir(original: Any) -> Any:
        def scandir(path: Any = None) -> Any:
            with original(path) as found:
                entries = sort_entries(list(found), lambda entry: entry.name)
            record_listing("os.scandir", path, [entry.name for entry in entries])
            return ScandirIterator(entries)

        return scandir

    for name, make_wrapper in (("listdir", wrap_listdir), ("scandir", wrap_scandir)):
        takes_descriptors = getattr(os_module, name) in os_module.supports_fd
        wrap_attribute(os_module, name, make_wrapper)
        if takes_descriptors:
            os_module.supports_fd.add(getattr(os_module, name))


LISTING = Interceptor("listing", "os", sort_and_intercept_directory_listings)


CONTENT_BYTES = 1 << 20
"""Of larger files the first and the last half of so much are digested."""
_CODE_SUFFIXES = (".py", ".pyc", ".so", ".pyi", ".pth", ".dll", ".dylib")
VIRTUAL_FOLDERS = ("/proc/", "/sys/", "/dev/")
SHARED_MEMORY_FOLDER = "/dev/shm/"
"""What lies there are files like others, which outlive the program."""
WRITTEN = "file.written"
"""A fact that is recorded only where lines are followed: a file was opened for writing."""
MOST_OUTPUTS = 1000
"""So many files that a process wrote are digested at its end."""


_open, _read, _close = os.open, os.read, os.close  # a program may replace them
_READABLE = os.O_RDONLY | getattr(os, "O_CLOEXEC", 0)


def add_audit_hook_for_opened_files(recorder: Recorder, module: Any) -> None:
    """One audit hook: it sees every way of opening a file from Python, whatever library opens it."""

    def hook(event: str, arguments: Any) -> None:
        if event == "open" and not recorder.stopped and not recorder.thread.inside_samerun:
            record_input_or_remember_output_file(recorder, *arguments)

    sys.addaudithook(hook)

    def record_at_end() -> None:
        record_output_files(recorder)

    def begin_in_forked_child() -> None:
        recorder.output_files.clear()
        if record_at_end not in recorder.end_callbacks:
            recorder.end_callbacks.append(record_at_end)  # what a child writes is a result too

    recorder.end_callbacks.append(record_at_end)
    recorder.fork_callbacks.append(begin_in_forked_child)


def record_input_or_remember_output_file(recorder: Recorder, path: Any, mode: Any, flags: Any) -> None:
    """Note a file that the program opens: its digest now where it reads, its name where it writes."""
    if not isinstance(path, (str, bytes)):
        return
    name = os.fsdecode(path)
    writer = recorder.writer
    own_trace = writer is not None and name == writer.path
    if own_trace or name.endswith(_CODE_SUFFIXES):
        return
    writes = mode[:1] not in ("r", "") if mode is not None else isinstance(flags, int) and flags & 3 != os.O_RDONLY
    if name.startswith(VIRTUAL_FOLDERS) and not name.startswith(SHARED_MEMORY_FOLDER):
        if not writes:
            record_read_of_virtual_file(recorder, name)
        return
    if writes or (mode is not None and "+" in mode):
        if len(recorder.output_files) < MOST_OUTPUTS and (user_line := stack_frames.find_user_line()).line:
            recorder.output_files[os.path.abspath(name)] = None
            if recorder.config.trace_lines:  # what a variable is read from may have been written by the same run
                recorder.emit_host_event(f.FACT, WRITTEN, aux=name, user_line=user_line)
        if writes:
            return
    user_line = stack_frames.find_user_line()
    if not user_line.line or not recorder.count_and_should_record_first_or_power_of_two(("file", name, user_line.line)):
        return
    recorder.thread.inside_samerun += 1
    try:
        size, value = digest_regular_file(name)
    except OSError:
        size, value = FileContent(0, NOTHING)
    finally:
        recorder.thread.inside_samerun -= 1
    recorder.emit_host_event(f.FILE, "open", aux=name, inputs=size, outputs=value, user_line=user_line)


def record_read_of_virtual_file(recorder: Recorder, name: str) -> None:
    """What the system makes up when it is asked: the state of the machine, or random bytes."""
    user_line = stack_frames.find_user_line()
    if not user_line.line or not recorder.count_and_should_record_first_or_power_of_two(("file", name, user_line.line)):
        return
    is_random = gives_random_bytes(name)
    if is_random:  # reading some of it here would be another draw
        value = recorder.config.folder.encode()
    elif is_machine_state_file(name):
        recorder.thread.inside_samerun += 1
        try:
            fd = _open(name, _READABLE | getattr(os, "O_NONBLOCK", 0))
            try:
                value = _read(fd, CONTENT_BYTES)
            finally:
                _close(fd)
        except OSError:
            return
        finally:
            recorder.thread.inside_samerun -= 1
    else:
        return
    kind, shown = (f.ENTROPY, name) if is_random else (f.FACT, MACHINE_FILE)
    recorder.emit_host_event(kind, shown, aux=name, value=value, user_line=user_line)


class FileContent(NamedTuple):
    """Size and digest of a file; (0, NOTHING) for what is not a regular file."""

    byte_count: int
    digest: bytes


def digest_regular_file(path: str) -> FileContent:
    """Size and digest of a regular file; other kinds are not touched. Raises OSError."""
    info = os.stat(path)
    if not stat.S_ISREG(info.st_mode):
        return FileContent(0, NOTHING)
    running = xxh3_128()
    fd = _open(path, _READABLE)
    try:
        if info.st_size <= CONTENT_BYTES:
            while part := _read(fd, CONTENT_BYTES):
                running.update(part)
        else:
            running.update(os.pread(fd, CONTENT_BYTES // 2, 0))
            running.update(os.pread(fd, CONTENT_BYTES // 2, info.st_size - CONTENT_BYTES // 2))
    finally:
        _close(fd)
    return FileContent(info.st_size, running.digest())


def record_output_files(recorder: Recorder) -> None:
    """What was written, as it is now; what is gone again was no output.

    In a check a process that recorded nothing else computed nothing, and a file does not make it one that did.
    """
    if recorder.writer is None and not recorder.config.receipt:
        return
    recorder.thread.inside_samerun += 1
    try:
        for name in recorder.output_files:
            try:
                size, value = digest_regular_file(name)
            except OSError:
                continue
            if value != NOTHING and (writer := recorder.writer or recorder.open_writer()):
                shown = to_original_path(name, recorder.config.copied_folder)
                recorder.emit(f.OUTPUT, name="open", aux=writer.intern_string(shown), inputs=size, outputs=value)
    finally:
        recorder.thread.inside_samerun -= 1


OPENED_FILES = Interceptor("files", "os", add_audit_hook_for_opened_files)


SYSTEM_FOLDERS = ("/proc/", "/sys/", "/dev/", "/usr/lib/", "/etc/")
EXISTENCE_FUNCTIONS = ("exists", "lexists", "isfile", "isdir", "getsize")
TIME_FUNCTIONS = ("getmtime", "getctime", "getatime")


def pin_and_intercept_os_path_queries(recorder: Recorder, path: Any) -> None:
    """The functions of `os.path`."""
    pinned = pins.STAT in recorder.config.pins

    def wrap_query(original: Any) -> Any:
        name = original.__name__

        def ask(*args: Any, **kwargs: Any) -> Any:
            value = original(*args, **kwargs)
            if pinned and name in TIME_FUNCTIONS:
                value = pins.PINNED_CLOCK_START
            elif name in TIME_FUNCTIONS and user_code.is_since_start(int(value * 1e9)):
                record_time_of_own_file(recorder, f"os.path.{name}")
            record_user_file_query(recorder, f"os.path.{name}", args[0] if args else None, value)
            return value

        return ask

    for name in (*EXISTENCE_FUNCTIONS, *TIME_FUNCTIONS):
        wrap_attribute(path, name, wrap_query)


def intercept_os_stat_and_fix_its_times(recorder: Recorder, os_module: Any) -> None:
    """`os.stat`, by which `pathlib` goes too: what is noted is the kind, the size and the time of change."""
    pinned = pins.STAT in recorder.config.pins
    original = os_module.stat

    def stat(path: Any, *args: Any, **kwargs: Any) -> Any:
        if recorder.stopped or recorder.thread.inside_samerun:
            return original(path, *args, **kwargs)
        try:
            found = original(path, *args, **kwargs)
        except OSError:
            record_user_file_query(recorder, "os.stat", path, None)
            raise
        if not stack_frames.is_called_by_user(("pathlib",)):
            return found
        if pinned:
            kept = list(found)
            kept[7:10] = [int(pins.PINNED_CLOCK_START)] * 3
            times = dict.fromkeys(("st_atime", "st_mtime", "st_ctime"), pins.PINNED_CLOCK_START)
            times.update({f"{name}_ns": int(pins.PINNED_CLOCK_START) * 10**9 for name in list(times)})
            extras = {field: getattr(found, field) for field in EXTRA_STAT_FIELDS if hasattr(found, field)}
            found = os_module.stat_result(kept, {**extras, **times})
        elif user_code.is_since_start(found.st_mtime_ns) and not TIME_FIELDS.isdisjoint(stack_frames.find_user_names()):
            record_time_of_own_file(recorder, "os.stat")
        record_user_file_query(recorder, "os.stat", path, (found.st_mode, found.st_size, found.st_mtime_ns))
        return found

    watched = make_wrapper_of_same_type(original, stat)
    for names in (os_module.supports_fd, os_module.supports_dir_fd, os_module.supports_follow_symlinks):
        if original in names:
            names.add(watched)
    os_module.stat = watched


TIME_FIELDS = frozenset(f"st_{kind}time{unit}" for kind in "mca" for unit in ("", "_ns"))
EXTRA_STAT_FIELDS = ("st_blksize", "st_blocks", "st_rdev")


def record_time_of_own_file(recorder: Recorder, function: str) -> None:
    """The time at which this run wrote a file is that of the clock: which of two files is newer may be chance."""
    recorder.emit_host_event(f.CLOCK, function, thin_repeats=True, only_at_user_code=True)


def record_user_file_query(recorder: Recorder, function: str, path: Any, answer: Any) -> None:
    if recorder.stopped or recorder.thread.inside_samerun or not isinstance(path, (str, bytes, os.PathLike)):
        return
    if not stack_frames.is_called_by_user(("pathlib",)):
        return
    shown = os.fsdecode(path)
    if shown.startswith(SYSTEM_FOLDERS):
        return
    recorder.emit_host_event(
        f.FACT, function, aux=shown, value=repr(answer).encode(), only_at_user_code=True, thin_repeats=True
    )


STAT_FACTS = Interceptor("file-facts", "os", intercept_os_stat_and_fix_its_times)
PATH_FACTS = Interceptor("file-facts-path", "posixpath", pin_and_intercept_os_path_queries)

"""What the machine is doing: free memory, load, space on disks, `/proc`, and the devices that give random bytes.

Such numbers are other ones in every run. With the pin `machine` they are fixed, and as large as they are now, so that a
program which divides by one of them goes on; with the pin `entropy` the devices give the same bytes.
"""

from __future__ import annotations

import builtins
import io
import os
import re
from typing import Any

from samerun.record import pins
from samerun.record.machine_files import (
    RANDOM_DEVICES,
    RANDOM_FILES,
    STARTED_PROGRAM,
    gives_random_bytes,
    is_machine_state_file,
)
from samerun.record.trace import format as f
from samerun.record.watching import stack_frames
from samerun.record.watching.interceptor import Interceptor, wrap_attribute
from samerun.record.watching.recorder import Recorder

FREE_PAGES = "SC_AVPHYS_PAGES"
"""What `os.sysconf` is asked that is not the same in all runs."""
FREE_SPACE_FIELDS = (3, 4, 6, 7)
"""Of `os.statvfs_result`: free and available blocks and inodes."""
MOST_CHARACTERS, MOST_OUTPUT = 200, 1 << 16
_NUMBER = re.compile(rb"(?<![A-Za-z0-9])\d+")


def pinned_number_of_same_size(name: str, number: int) -> int:
    """A fixed number with as many digits as the true one."""
    return pinned_number_with_digits(name, len(str(abs(number))))


def pinned_number_with_digits(name: str, digit_count: int) -> int:
    first = 10 ** (digit_count - 1)
    return 5 * first + pins.pinned_seed(f"machine {name}") % first if first > 1 else 5


def pinned_file_content(name: str, content: bytes) -> bytes:
    """What a file of `/proc` shows, with every number in it fixed."""
    if name.startswith(RANDOM_FILES + "uuid"):
        digits = f"{pins.pinned_seed(name, 64):032x}"
        return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:])).encode() + b"\n"
    count = 0

    def fix(found: re.Match[bytes]) -> bytes:
        nonlocal count
        count += 1
        # Counted, not read as a number: the nanoseconds that `date` prints may begin with 0.
        return str(pinned_number_with_digits(f"{name} {count}", len(found[0]))).encode()

    return _NUMBER.sub(fix, content)


class PinnedDevice(io.RawIOBase):
    """A device of random bytes that gives the same bytes in every run."""

    def __init__(self, name: str) -> None:
        self.take = pins.make_pinned_byte_reader(name)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        view = memoryview(buffer).cast("B")
        view[:] = self.take(len(view))
        return len(view)


def pin_files_of_machine(recorder: Recorder, io_module: Any) -> None:
    """`open` of what is no file on a disk. The reading itself is recorded with that of other files."""
    if not (recorder.has_pin_anywhere(pins.ENTROPY) or recorder.has_pin_anywhere(pins.MACHINE)):
        return

    def wrap(original: Any) -> Any:
        def open(file: Any, mode: str = "r", *args: Any, **kwargs: Any) -> Any:
            name = os.fsdecode(file) if isinstance(file, (str, bytes, os.PathLike)) else ""
            is_random = gives_random_bytes(name)
            found = original(file, mode, *args, **kwargs)
            if not (is_random or is_machine_state_file(name)) or mode.strip("rbt"):
                return found
            if recorder.thread.inside_samerun or not recorder.is_pinned_here(
                pins.ENTROPY if is_random else pins.MACHINE
            ):
                return found
            with found:
                raw = found if "b" in mode else found.buffer
                if name in RANDOM_DEVICES:
                    pinned: Any = io.BufferedReader(PinnedDevice(name))
                else:
                    pinned = io.BytesIO(pinned_file_content(name, raw.read()))
                return pinned if "b" in mode else io.TextIOWrapper(pinned, found.encoding, found.errors)

        return open

    wrap_attribute(io_module, "open", wrap)
    builtins.open = io_module.open


def pin_and_intercept_machine_queries(recorder: Recorder, os_module: Any) -> None:
    """The functions of `os` that say what memory, processors and disks are doing."""

    def record_or_pin(name: str, value: Any, pinned_value: Any) -> Any:
        """The value that the program sees."""
        if recorder.stopped or recorder.thread.inside_samerun:
            return value
        user_line = stack_frames.find_user_line()
        if not user_line.line:
            return value
        if recorder.is_pinned_here(pins.MACHINE):
            value = pinned_value(value)
        recorder.emit_host_event(f.FACT, name, value=repr(value).encode(), thin_repeats=True, user_line=user_line)
        return value

    def wrap_sysconf(original: Any) -> Any:
        numbers = {FREE_PAGES, getattr(os_module, "sysconf_names", {}).get(FREE_PAGES)}

        def sysconf(name: Any) -> Any:
            value = original(name)
            if name not in numbers:
                return value
            return record_or_pin("os.sysconf", value, lambda n: pinned_number_of_same_size(FREE_PAGES, n))

        return sysconf

    def wrap_getloadavg(original: Any) -> Any:
        def getloadavg() -> Any:
            return record_or_pin(
                "os.getloadavg", original(), lambda _: tuple(pins.pinned_seed(f"load {n}") / 2**32 for n in range(3))
            )

        return getloadavg

    def wrap_statvfs(original: Any) -> Any:
        def pinned_space(found: Any) -> Any:
            fields = list(found)
            for at in FREE_SPACE_FIELDS:
                fields[at] = pinned_number_of_same_size(f"space {at}", fields[at])
            return os_module.statvfs_result(fields)

        def statvfs(path: Any) -> Any:
            return record_or_pin("os.statvfs", original(path), pinned_space)

        return statvfs

    for name, make_wrapper in (
        ("sysconf", wrap_sysconf), ("getloadavg", wrap_getloadavg), ("statvfs", wrap_statvfs),
    ):  # fmt: skip
        wrap_attribute(os_module, name, make_wrapper)


def pin_and_record_numbers_in_outputs_of_programs(recorder: Recorder, subprocess: Any) -> None:
    """What a started program prints, where the program reads it: its numbers are fixed as those of `/proc` are."""

    def pin_output(user_line: Any, command: str, output: Any) -> Any:
        if not isinstance(output, (str, bytes)) or not recorder.is_pinned_here(pins.MACHINE, user_line):
            return output
        if isinstance(output, bytes):
            return pinned_file_content(command, output)
        return pinned_file_content(command, output.encode("utf-8", "surrogateescape")).decode(
            "utf-8", "surrogateescape"
        )

    def record_output(user_line: Any, command: str, output: Any) -> None:
        recorder.emit_host_event(
            f.FACT,
            STARTED_PROGRAM,
            aux=command,
            value=repr(output[:MOST_OUTPUT]).encode(),
            thin_repeats=True,
            user_line=user_line,
        )

    def wrap_communicate(original: Any) -> Any:
        def communicate(self: Any, *args: Any, **kwargs: Any) -> Any:
            output, errors = original(self, *args, **kwargs)
            if recorder.stopped or recorder.thread.inside_samerun or output is None:
                return output, errors
            user_line = stack_frames.find_user_line()
            if user_line.line:
                command = describe_command(self.args)
                output = pin_output(user_line, command, output)
                record_output(user_line, command, output)
            return output, errors

        return communicate

    def wrap_popen(original: Any) -> Any:
        def popen(command: str, mode: str = "r", *args: Any, **kwargs: Any) -> Any:
            found = original(command, mode, *args, **kwargs)
            user_line = stack_frames.find_user_line()
            if mode != "r" or not user_line.line or recorder.stopped:
                return found
            record_output(user_line, describe_command(command), recorder.config.folder)
            if not recorder.is_pinned_here(pins.MACHINE, user_line):
                return found
            with found:
                return io.StringIO(pin_output(user_line, describe_command(command), found.read()))

        return popen

    wrap_attribute(subprocess.Popen, "communicate", wrap_communicate)
    wrap_attribute(os, "popen", wrap_popen)


def describe_command(arguments: Any) -> str:
    """A command line as one text, not all of it."""
    words = [arguments] if isinstance(arguments, (str, bytes, os.PathLike)) else list(arguments)
    return " ".join(os.fsdecode(word) for word in words)[:MOST_CHARACTERS]


FILES = Interceptor("machine-files", "io", pin_files_of_machine)
PROGRAMS = Interceptor("machine-programs", "subprocess", pin_and_record_numbers_in_outputs_of_programs)
QUERIES = Interceptor("machine-queries", "os", pin_and_intercept_machine_queries)

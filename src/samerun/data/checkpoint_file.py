"""Write a checkpoint with `torch.save`, and read one that a stranger may have written as plain values."""

from __future__ import annotations

import os
import signal
import threading
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import torch

from samerun.base.files import open_regular_file
from samerun.data import plain_values


@contextmanager
def defer_signals(on_interrupt: Callable[[], None]) -> Iterator[None]:
    """Run Python signal handlers only when the block has ended, for the signals that arrived in it.

    torch's writer calls back into Python from C++, and loses, or dies of, what a handler raises there. on_interrupt:
    called at a Ctrl-C that would raise KeyboardInterrupt, to end the block soon.
    """
    if threading.current_thread() is not threading.main_thread():  # handlers run in the main thread only
        yield
        return
    noted: set[int] = set()
    handlers: dict[int, Any] = {}

    def note(number: int, frame: Any) -> None:
        noted.add(number)
        if handlers[number] is signal.default_int_handler:
            on_interrupt()

    # Replace the handler of Ctrl-C first, and restore it last: the KeyboardInterrupt it raises while other handlers
    # are being exchanged would leave those as they are.
    numbers = sorted(signal.valid_signals(), key=lambda number: number != signal.SIGINT)
    try:
        for number in numbers:
            handler = signal.getsignal(number)
            if callable(handler):
                handlers[number] = handler
                signal.signal(number, note)
        yield
    finally:
        for replaced, handler in reversed(handlers.items()):
            signal.signal(replaced, handler)
        for came in sorted(noted, key=lambda number: number == signal.SIGINT):
            signal.raise_signal(came)


def write_archive(content: dict[str, Any], file: IO[bytes]) -> None:
    """Write `content` with `torch.save`. Raises what writing raised: torch would replace it with a RuntimeError."""
    target: Any = _ErrorKeepingFile(file)
    try:
        with defer_signals(target.request_interrupt):
            torch.save(content, target)
    except RuntimeError as error:
        raise (target.error or error) from error
    finally:
        target.closed = True
    if target.error is not None:
        raise target.error


class _ErrorKeepingFile:
    """A file that keeps the first error of a write, and silently drops later writes.

    torch's writer writes the end of the archive in its destructor if it has not before, and an exception there
    terminates the process.
    """

    def __init__(self, file: IO[bytes]) -> None:
        self.file = file
        self.error: BaseException | None = None
        self.closed = self.stopped = False

    def request_interrupt(self) -> None:
        """Make the next write raise KeyboardInterrupt."""
        self.stopped = True

    def write(self, data: Any) -> int:
        if self.closed or self.error is not None:
            return memoryview(data).nbytes
        try:
            if self.stopped:
                raise KeyboardInterrupt
            return self.file.write(data)
        except BaseException as error:
            self.error = error
            raise

    def flush(self) -> None:
        if not self.closed:
            self.file.flush()


def make_previous_path(path: Path) -> Path:
    """Return where the checkpoint that `path` held before is kept."""
    return path.with_name(path.name + ".previous")


class UnreadableCheckpoint(Exception):
    """The file is not a readable checkpoint; the message says why."""


def read_untrusted_archive(path: Path) -> Any:
    """Return what torch reads with `weights_only=True`. Raises UnreadableCheckpoint for an unreadable or unsafe file.

    torch maps the file into memory: a tensor then cannot reach beyond the file, whatever size it claims, and nothing
    is decompressed, so a small file cannot fill the memory. Callers that keep tensors must call
    `copy_tensors_out_of_mapped_file`, because truncating the file later would take the mapped memory with it.
    """
    try:
        _require_stored_archive(path)
        with torch.sparse.check_sparse_tensor_invariants(True):  # type: ignore[no-untyped-call]
            content = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
    except UnreadableCheckpoint:
        raise
    except Exception as error:  # torch raises what its readers raise: RuntimeError, UnpicklingError, EOFError, ...
        said = (str(error) or type(error).__name__).splitlines()[0][:200]
        raise UnreadableCheckpoint(f"torch cannot read it ({said})") from error
    said = plain_values.describe_first_unplain_part(content)
    if said:
        raise UnreadableCheckpoint(said)
    return content


def _require_stored_archive(path: Path) -> None:
    """Raises UnreadableCheckpoint unless it is an archive as torch writes it: uncompressed, no overlapping entries."""
    with open_regular_file(path) as file:
        try:
            entries = zipfile.ZipFile(file).infolist()
        except (zipfile.BadZipFile, ValueError, NotImplementedError, EOFError) as error:
            raise UnreadableCheckpoint(f"torch cannot read it ({error})") from error
        if any(entry.compress_type != zipfile.ZIP_STORED for entry in entries):
            raise UnreadableCheckpoint("parts of it are compressed, which torch.save does not do")
        if sum(entry.file_size for entry in entries) > os.fstat(file.fileno()).st_size:
            raise UnreadableCheckpoint("its parts overlap")


def copy_tensors_out_of_mapped_file(content: Any) -> None:
    """Give every tensor memory of its own in the place of the mapped file; tensors that share memory still share it."""
    copies: dict[tuple[int, int], torch.UntypedStorage] = {}
    for _, part in plain_values.iterate_nested_parts("", content):
        if not isinstance(part, torch.Tensor):
            continue
        if part.layout is not torch.strided or part.is_quantized:
            part.data = part.detach().clone()
            continue
        mapped = part.untyped_storage()
        key = mapped.data_ptr(), mapped.nbytes()
        if key not in copies:
            copies[key] = mapped.clone()  # type: ignore[no-untyped-call]
            copies[copies[key].data_ptr(), mapped.nbytes()] = copies[key]  # a later tensor may already use the copy
        part.data = _view_storage_like(copies[key], part)


def _view_storage_like(storage: torch.UntypedStorage, like: torch.Tensor) -> torch.Tensor:
    empty = torch.empty(0, dtype=like.dtype)
    made = empty.set_(storage, like.storage_offset(), like.shape, like.stride())
    made = made.conj() if like.is_conj() else made
    return torch._neg_view(made) if like.is_neg() else made

"""Read many receipts, on all cores: reading them is parsing, and parsing is what a first listing waits for.

Worker processes are told names and answer with plain values. One whose parent is gone ends by itself, for its
pipe does; what one that died had been told, the parent reads itself.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from samerun.record.receipt.entry import Entry, read_entry

AT_ONCE = 500
"""So many names are told to a worker, and so many entries come back, at a time."""
WORTH_IT = 4 * AT_ONCE
"""Fewer are read before a worker has started."""
MOST_WORKERS = 16

Told = tuple[str, int, int]
"""Name, stamp and size of a file."""


def read_entries(folder: Path, files: Sequence[Told]) -> Iterator[list[Entry]]:
    """The entries of files of a folder, some at a time, in any order."""
    parts = [files[at : at + AT_ONCE] for at in range(0, len(files), AT_ONCE)]
    workers = min(_cores(), MOST_WORKERS, len(parts))
    if len(files) < WORTH_IT or workers < 2:
        for part in parts:
            yield _read(folder, part)
        return
    yield from _by_workers(folder, parts, workers)


def _read(folder: Path, part: Sequence[Told]) -> list[Entry]:
    return [read_entry(folder / name, stamp, size) for name, stamp, size in part]


def _by_workers(folder: Path, parts: list[Sequence[Told]], count: int) -> Iterator[list[Entry]]:
    from multiprocessing.connection import wait

    with _workers(folder, count) as free:
        left = iter(parts)
        busy: dict[Any, Sequence[Told]] = {}
        while True:
            for worker in free:
                part = next(left, None)
                if part is None:
                    break
                busy[worker] = part
                _tell(worker, part)
            if not busy:
                return
            free = list[Any](wait(list(busy)))
            for worker in tuple(free):
                part = busy.pop(worker)
                try:
                    answer = worker.recv()
                except (EOFError, OSError):  # it was killed
                    free.remove(worker)
                    answer = _read(folder, part)
                yield answer
            if not free and not busy:
                for part in left:  # all were
                    yield _read(folder, part)


def _tell(worker: Any, part: Sequence[Told]) -> None:
    try:
        worker.send(part)
    except OSError:
        pass  # it was killed: `recv` says so


@contextmanager
def _workers(folder: Path, count: int) -> Iterator[list[Any]]:
    """Pipes to fresh processes. Fresh, not forked: the caller may have threads."""
    from multiprocessing import get_context

    context = get_context("spawn")
    pipes, processes = [], []
    try:
        with _deaf():
            for _ in range(count):
                ours, theirs = context.Pipe()
                process = context.Process(target=_work, args=(folder, theirs), daemon=True)
                process.start()
                theirs.close()
                pipes.append(ours)
                processes.append(process)
        yield list(pipes)
    finally:
        for pipe in pipes:
            pipe.close()
        for process in processes:
            process.terminate()
            process.join()


def _work(folder: Path, pipe: Any) -> None:
    """In a worker: until the parent closes the pipe."""
    try:
        while True:
            pipe.send(_read(folder, pipe.recv()))
    except (EOFError, OSError):
        return


@contextmanager
def _deaf() -> Iterator[None]:
    """Children started in here do not hear Ctrl-C, which a terminal sends to all: the parent ends them."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _cores() -> int:
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not on this system
        return os.cpu_count() or 1

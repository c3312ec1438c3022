"""Summaries of receipts, for the index and `samerun log`; many receipts are read in parallel.

Parsing is what a first listing waits for, so large folders are read on all cores. Workers are sent file names and
return plain values. A worker whose parent has died exits because its pipe closes; the files of a worker that was
killed are read by the parent.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from samerun.base.errors import SamerunError
from samerun.record.receipt import receipt_json


@dataclass(frozen=True)
class ReceiptSummary:
    """One receipt in one row. The field names are columns of the index and keys of `samerun log --json`.

    `stamp`, `size`: modification time (ns) and size of the file when it was read. `problem`: why the file is not a
    receipt, or "".
    """

    file: str
    stamp: int
    size: int
    began: str
    command: str
    ended: str
    complete: bool
    steps: int
    processes: int
    commit_: str
    torch: str
    threads: str
    host: str
    digest: str
    problem: str


def read_summary(path: Path, mtime_ns: int, size: int) -> ReceiptSummary:
    """Summarize a file, whatever it contains."""
    return _summarize_or_explain(path.name, mtime_ns, size, lambda: receipt_json.read_untrusted_json(path))


def parse_summary(name: str, mtime_ns: int, raw: bytes) -> ReceiptSummary:
    """Summarize the bytes of a file, whatever they contain."""
    return _summarize_or_explain(name, mtime_ns, len(raw), lambda: receipt_json.parse_untrusted_json(raw, name))


def make_unreadable_summary(name: str, mtime_ns: int, size: int, problem: str) -> ReceiptSummary:
    name, problem = to_truncated_sqlite_text(name), to_truncated_sqlite_text(problem)
    return ReceiptSummary(name, mtime_ns, size, "", "", "", False, 0, 0, "", "", "", "", "", problem)


def _summarize_or_explain(name: str, mtime_ns: int, size: int, load: Callable[[], Any]) -> ReceiptSummary:
    try:
        return _summarize(name, mtime_ns, size, load())
    except SamerunError as error:
        return make_unreadable_summary(name, mtime_ns, size, error.message)
    except ValueError as error:
        return make_unreadable_summary(name, mtime_ns, size, f"not a samerun receipt: {error}")
    except (KeyError, TypeError, AttributeError, OverflowError) as error:
        return make_unreadable_summary(name, mtime_ns, size, f"not a samerun receipt: {error!r}")


def _summarize(name: str, mtime_ns: int, size: int, receipt: dict[str, Any]) -> ReceiptSummary:
    """Raises ValueError, KeyError, TypeError and the like for JSON that is not a receipt."""
    if receipt["kind"] != "samerun receipt":
        raise ValueError("it has another kind")
    if receipt["schema"] != receipt_json.SCHEMA:
        raise ValueError(f"it has schema {receipt['schema']!r}; this samerun reads schema {receipt_json.SCHEMA}")
    ended = receipt["ended"]
    end = f"signal {ended['signal']}" if ended["signal"] is not None else f"exit {ended['exit_code']}"
    if ended.get("exception") is not None or (ended["signal"] is None and ended["exit_code"] is None):
        end = ended.get("exception") or "block ended"
    steps = sum(int(one["steps"]["values"]["count"]) for one in receipt["processes"].values())
    return ReceiptSummary(
        file=to_truncated_sqlite_text(name),
        stamp=mtime_ns,
        size=size,
        began=to_truncated_sqlite_text(receipt["circumstances"].get("began", "")),
        command=" ".join(to_truncated_sqlite_text(word) for word in receipt["command"]["words"]),
        ended=to_truncated_sqlite_text(end),
        complete=bool(ended["complete"]),
        steps=max(0, min(steps, 1 << 60)),
        processes=len(receipt["processes"]),
        commit_=to_truncated_sqlite_text(receipt["code"]["commit"] or ""),
        torch=to_truncated_sqlite_text(receipt["packages"].get("torch", "")),
        threads=to_truncated_sqlite_text(receipt["knobs"].get("threads", "")),
        host=to_truncated_sqlite_text(receipt["circumstances"].get("host", "")),
        digest=to_truncated_sqlite_text(receipt["digest"]),
        problem="",
    )


def to_truncated_sqlite_text(value: Any) -> str:
    """A text without lone surrogates, which SQLite refuses, and at most 1000 characters long."""
    return str(value)[:1000].encode("utf-8", "backslashreplace").decode()


FILES_PER_TASK = 500
"""How many files one task of a worker has."""
MIN_FILES_FOR_WORKERS = 4 * FILES_PER_TASK
"""Fewer files are read before a worker process would have started."""
MOST_WORKERS = 16

FileState = tuple[str, int, int]
"""Name, modification time (ns) and size of a file."""


def read_summaries(folder: Path, files: Sequence[FileState]) -> Iterator[list[ReceiptSummary]]:
    """Yield the summaries of files of a folder, in lists and in any order."""
    parts = [files[at : at + FILES_PER_TASK] for at in range(0, len(files), FILES_PER_TASK)]
    workers = min(_count_cores_in_affinity_mask(), MOST_WORKERS, len(parts))
    if len(files) < MIN_FILES_FOR_WORKERS or workers < 2:
        for part in parts:
            yield _summarize_files(folder, part)
        return
    yield from _read_in_any_order_with_workers(folder, parts, workers)


def _summarize_files(folder: Path, file_states: Sequence[FileState]) -> list[ReceiptSummary]:
    return [read_summary(folder / name, stamp, size) for name, stamp, size in file_states]


def _read_in_any_order_with_workers(
    folder: Path, parts: list[Sequence[FileState]], worker_count: int
) -> Iterator[list[ReceiptSummary]]:
    from multiprocessing.connection import wait

    with _start_summary_worker_pipes(folder, worker_count) as free:
        left = iter(parts)
        busy: dict[Any, Sequence[FileState]] = {}
        while True:
            for worker in free:
                part = next(left, None)
                if part is None:
                    break
                busy[worker] = part
                _try_send_files_to_worker(worker, part)
            if not busy:
                return
            free = list[Any](wait(list(busy)))
            for worker in tuple(free):
                part = busy.pop(worker)
                try:
                    answer = worker.recv()
                except (EOFError, OSError):  # it was killed
                    free.remove(worker)
                    answer = _summarize_files(folder, part)
                yield answer
            if not free and not busy:
                for part in left:  # all workers were killed
                    yield _summarize_files(folder, part)


def _try_send_files_to_worker(worker_pipe: Any, part: Sequence[FileState]) -> None:
    try:
        worker_pipe.send(part)
    except OSError:
        pass  # it was killed: `recv` will raise


@contextmanager
def _start_summary_worker_pipes(folder: Path, worker_count: int) -> Iterator[list[Any]]:
    """Pipes to new worker processes. They are spawned, not forked: the caller may have threads."""
    from multiprocessing import get_context

    context = get_context("spawn")
    pipes, processes = [], []
    try:
        with _children_ignore_sigint():
            for _ in range(worker_count):
                ours, theirs = context.Pipe()
                process = context.Process(
                    target=_serve_summary_requests_until_closed, args=(folder, theirs), daemon=True
                )
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


def _serve_summary_requests_until_closed(folder: Path, pipe: Any) -> None:
    """The main loop of a worker: read files until the parent closes the pipe."""
    try:
        while True:
            pipe.send(_summarize_files(folder, pipe.recv()))
    except (EOFError, OSError):
        return


@contextmanager
def _children_ignore_sigint() -> Iterator[None]:
    """Children started in the block ignore Ctrl-C, which a terminal sends to all processes: the parent stops them."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _count_cores_in_affinity_mask() -> int:
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not available on this system
        return os.cpu_count() or 1

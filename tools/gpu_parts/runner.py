"""One part in a process of its own: its lines are read as they come, its limits kept, and nothing of it is left behind.

A check that ends the process, that does not answer, or that loses the device is recorded as failed, and the part is
started again for what is left. Whatever a part starts is killed with it: its process group, and, on Linux, what went
into a group of its own, which is known by a word in its environment.
"""

from __future__ import annotations

import json
import os
import selectors
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gpu_parts.checks import DONE_VARIABLE, FAILURE_LINES, LINES_VARIABLE

MARK_VARIABLE = "SAMERUN_GPU_MARK"
START_LIMIT = 180.0
"""Seconds until a part has said what its checks are: torch is imported, perhaps from a cold disk."""
MOST_RESTARTS = 25
KEPT_OUTPUT = 16_000
"""Characters of what a part prints that are kept: the last ones."""
GRACE_SECONDS = 1.0
"""Between asking a process group to end, and ending it."""
Facts = dict[str, Any]


@dataclass
class PartRun:
    """What came of a part: results by check; `plan`: all its checks; `ended`: done, time, interrupted or broken."""

    plan: list[str] = field(default_factory=list)
    checks: dict[str, Facts] = field(default_factory=dict)
    ended: str = "broken"
    trouble: list[str] = field(default_factory=list)
    restarts: int = 0


@dataclass
class _Started:
    process: subprocess.Popen[bytes]
    lines: int
    """Descriptor of the part's lines."""
    mark: str
    rest: bytes = b""
    output: bytes = b""
    running: str | None = None
    check_deadline: float = 0.0
    said_end: str | None = None


def run_part_in_process(
    command: list[str],
    environment: dict[str, str],
    deadline: float,
    done: dict[str, Facts],
    on_result: Callable[[str, Facts], None],
    work: Path,
    on_begin: Callable[[str], None] = lambda name: None,
) -> PartRun:
    """Run a part until its checks are done or `deadline` (of `time.monotonic`) is over. `done`: what is known already.

    `on_result` is called with every result as it comes. An interrupt ends the part, and the run says so.
    """
    run = PartRun(checks=dict(done))
    while True:
        listed = _write_done(work, run)
        started = _start(command, {**environment, DONE_VARIABLE: str(listed)})
        try:
            with _note_interrupts() as interrupts:
                why = _follow(started, run, deadline, on_result, on_begin, interrupts)
            if interrupts:
                why = "interrupted"
        except KeyboardInterrupt:
            why = "interrupted"
        finally:
            listed.unlink(missing_ok=True)
            end_process_and_descendants(started.process, started.mark)
            _read_rest(started, run, on_result)
            os.close(started.lines)
            assert started.process.stdout is not None
            started.process.stdout.close()
        if why in ("time", "interrupted"):
            run.ended = why
            return run
        if started.running is not None:
            _record_lost_check(started, run, why, on_result)
        elif started.said_end is None:
            how = "did not begin in its time, and was ended" if why == "late" else _describe_exit(started.process)
            run.trouble = [f"The part {how}.", *_last_lines(started.output)]
            return run
        if started.said_end == "done":
            run.ended = "done"
            if started.process.returncode != 0:
                run.trouble = [f"After its last check the part {_describe_exit(started.process)}."]
            return run
        run.restarts += 1
        if run.restarts > MOST_RESTARTS:
            run.trouble = [f"The part was started {run.restarts} times, and ended within a check each time."]
            return run


@contextmanager
def _note_interrupts() -> Iterator[list[int]]:
    """The numbers of the interrupts that come in the block: an exception would lose what is being read."""
    noted: list[int] = []
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = [signal.signal(number, lambda number, frame: noted.append(number)) for number in numbers]
    try:
        yield noted
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)


def _write_done(work: Path, run: PartRun) -> Path:
    handle, name = tempfile.mkstemp(prefix="done-", suffix=".json", dir=work)
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        json.dump(sorted(run.checks), file)
    return Path(name)


def _start(command: list[str], environment: dict[str, str]) -> _Started:
    lines, write_end = os.pipe()
    mark = f"{os.getpid()}-{time.monotonic_ns()}"
    try:
        process = subprocess.Popen(
            command,
            env={**environment, LINES_VARIABLE: str(write_end), MARK_VARIABLE: mark},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            pass_fds=(write_end,),
            start_new_session=True,
        )
    finally:
        os.close(write_end)
    assert process.stdout is not None
    for descriptor in (lines, process.stdout.fileno()):
        os.set_blocking(descriptor, False)
    return _Started(process, lines, mark)


def _follow(
    started: _Started,
    run: PartRun,
    deadline: float,
    on_result: Callable[[str, Facts], None],
    on_begin: Callable[[str], None],
    interrupts: list[int],
) -> str:
    """Read until the process has "ended", a check is "late", or the time is over or an interrupt came ("time")."""
    assert started.process.stdout is not None
    started.check_deadline = time.monotonic() + START_LIMIT
    with selectors.DefaultSelector() as selector:
        selector.register(started.lines, selectors.EVENT_READ)
        selector.register(started.process.stdout, selectors.EVENT_READ)
        while True:
            now = time.monotonic()
            if now >= deadline or interrupts:
                return "time"
            if now >= started.check_deadline:
                return "late"
            # Not at the end of the pipes: a grandchild may hold those open for ever.
            if started.process.poll() is not None:
                return "ended"
            for key, _ in selector.select(min(deadline - now, started.check_deadline - now, 0.2)):
                data = _read_available(key.fd)
                if data is None:
                    continue
                if not data:
                    selector.unregister(key.fileobj)
                elif key.fd == started.lines:
                    _take_lines(started, run, data, on_result, on_begin)
                else:
                    started.output = (started.output + data)[-KEPT_OUTPUT:]


def _read_available(descriptor: int) -> bytes | None:
    """What there is; None for nothing yet, b"" at the end."""
    try:
        return os.read(descriptor, 65536)
    except (BlockingIOError, InterruptedError):
        return None


def _read_rest(started: _Started, run: PartRun, on_result: Callable[[str, Facts], None]) -> None:
    """What lay in the pipes when the process ended. No more than fits: a survivor may still write."""
    assert started.process.stdout is not None
    for _ in range(64):
        data = _read_available(started.lines)
        if not data:
            break
        _take_lines(started, run, data, on_result, lambda name: None)
    for _ in range(64):
        data = _read_available(started.process.stdout.fileno())
        if not data:
            break
        started.output = (started.output + data)[-KEPT_OUTPUT:]


def _take_lines(
    started: _Started,
    run: PartRun,
    data: bytes,
    on_result: Callable[[str, Facts], None],
    on_begin: Callable[[str], None],
) -> None:
    *lines, started.rest = (started.rest + data).split(b"\n")
    for line in lines:
        try:
            facts = json.loads(line)
        except ValueError:
            continue
        if "plan" in facts:
            run.plan = facts["plan"]
        elif "begin" in facts:
            started.running = facts["begin"]
            started.check_deadline = time.monotonic() + facts["limit"]
            on_begin(facts["begin"])
        elif "check" in facts:
            name = facts.pop("check")
            started.running = None
            started.check_deadline = time.monotonic() + START_LIMIT
            run.checks[name] = facts
            on_result(name, facts)
        elif "end" in facts:
            started.said_end = facts["end"]


def _record_lost_check(started: _Started, run: PartRun, why: str, on_result: Callable[[str, Facts], None]) -> None:
    assert started.running is not None
    how = (
        "The check did not answer in its time, and was ended."
        if why == "late"
        else f"The process {_describe_exit(started.process)} in this check."
    )
    result = {"state": "failed", "failure": [how, *_last_lines(started.output)]}
    run.checks[started.running] = result
    on_result(started.running, result)


def _describe_exit(process: subprocess.Popen[bytes]) -> str:
    code = process.returncode
    if code is not None and code < 0:
        with suppress(ValueError):
            return f"was ended by {signal.Signals(-code).name}"
    return f"ended with exit code {code}"


def _last_lines(output: bytes) -> list[str]:
    """The end of what was printed, where a traceback or the driver's words stand."""
    lines = [line.rstrip() for line in output.decode(errors="replace").splitlines() if line.strip()]
    return [line[:300] for line in lines[-FAILURE_LINES:]]


def end_process_and_descendants(process: subprocess.Popen[bytes], mark: str) -> None:
    """End a process, its group and whatever it started, at once where they do not go by themselves."""
    if process.poll() is None:
        _signal_group(process.pid, signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            process.wait(GRACE_SECONDS)
    _signal_group(process.pid, signal.SIGKILL)
    for pid in _list_marked_processes(mark):
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)
    with suppress(subprocess.TimeoutExpired):  # a process inside the driver may not die before the driver lets it
        process.wait(30)


def _signal_group(leader: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, number)


def _list_marked_processes(mark: str) -> Iterator[int]:
    word = f"{MARK_VARIABLE}={mark}".encode()
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if word in (entry / "environ").read_bytes().split(b"\0"):
                yield int(entry.name)
        except OSError:
            continue


def part_command(part: str, device: str, patterns: list[str], skipped: list[str]) -> list[str]:
    """The command line of a part's process."""
    words = [sys.executable, "-X", "faulthandler", "-m", "gpu_parts.checks", part, "--device", device]
    words += [word for pattern in patterns for word in ("--checks", pattern)]
    return words + [word for pattern in skipped for word in ("--skip", pattern)]

"""Traces of strangers: bounded time and memory, no traceback, no waiting."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hostile_traces import STRINGS, block, head, operators, starting_threads, strings, with_insertions, write

from samerun.record.trace import format as f

SAMERUN = str(Path(sys.executable).with_name("samerun"))
MOST_SECONDS, MOST_KIB = 10, 1 << 20


def diff(a: Path, b: Path) -> tuple[int, dict[str, object], str]:
    """Exit code, record and standard error of `samerun diff`, within the limits."""
    program = (
        "import resource, subprocess, sys; code = subprocess.call(sys.argv[1:]);"
        "u = resource.getrusage(resource.RUSAGE_CHILDREN); print(u.ru_utime + u.ru_stime, u.ru_maxrss); sys.exit(code)"
    )
    answer = a.parent / "answer.json"
    answer.unlink(missing_ok=True)
    words = [sys.executable, "-c", program, SAMERUN, "diff", "--quiet", "--json", str(answer), str(a), str(b)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=200)
    seconds, kib = map(float, done.stdout.split())
    assert "Traceback" not in done.stderr, done.stderr
    assert seconds < MOST_SECONDS and kib < MOST_KIB, (seconds, kib)
    record = json.loads(answer.read_text()) if answer.exists() else {}
    return done.returncode, record, done.stderr


@pytest.mark.parametrize(
    "count, every, kind",
    [
        (100_000, 20, f.OPERATOR),
        pytest.param(700_000, 7, f.OPERATOR, marks=pytest.mark.exhaustive),
        pytest.param(700_000, 7, f.DRAW, marks=pytest.mark.exhaustive),
        (20_000, 7, f.DRAW),
    ],
)
def test_insertions_take_time_by_their_number(count: int, every: int, kind: int, tmp_path: Path) -> None:
    events = operators(count)
    write(tmp_path / "a" / "main.trace", events)
    longer = with_insertions(events, every, kind)
    write(tmp_path / "b" / "main.trace", longer)
    assert diff(tmp_path / "a", tmp_path / "b")[0] == 0
    longer["out0"][-1] += 1
    write(tmp_path / "b" / "main.trace", longer)
    code, record, _ = diff(tmp_path / "a", tmp_path / "b")
    assert code == 1
    assert record["first_difference"]["what"] == "outputs"  # type: ignore[index]


@pytest.mark.parametrize("role", ["t#", "pool"])
@pytest.mark.parametrize("count", [2000, pytest.param(60_000, marks=pytest.mark.exhaustive)])
def test_many_threads_that_all_differ(role: str, count: int, tmp_path: Path) -> None:
    events = operators(10 * count)
    events["thread"] = np.arange(len(events)) % count + 1
    texts = [*STRINGS, *(f"main/{role}{number}" for number in range(count))]
    threads = starting_threads(count, len(STRINGS) + 1)
    write(tmp_path / "a" / "main.trace", np.concatenate([threads, events]), texts)
    events["out0"] += 1
    write(tmp_path / "b" / "main.trace", np.concatenate([threads, events]), texts)
    code, record, _ = diff(tmp_path / "a", tmp_path / "b")
    assert code == 1
    assert record["first_difference"]["what"] == "outputs"  # type: ignore[index]


def test_one_without_events_and_one_with_a_pool_thread(tmp_path: Path) -> None:
    texts = [*STRINGS, "main/pool-1#1"]
    events = operators(3)
    events["thread"] = 1
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "main.trace").write_bytes(head() + block(f.END, 0, b""))
    write(tmp_path / "b" / "main.trace", np.concatenate([starting_threads(1, len(texts)), events]), texts)
    for a, b, only in (("a", "b", "B"), ("b", "a", "A")):
        code, record, _ = diff(tmp_path / a, tmp_path / b)
        assert code == 1
        assert record["first_difference"]["operator"]["only_in"] == only  # type: ignore[index]
    assert diff(tmp_path / "a", tmp_path / "a")[0] == 0


def test_a_run_without_operators_is_not_the_same_as_one_with(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "main.trace").write_bytes(head() + block(f.END, 0, b""))
    write(tmp_path / "b" / "main.trace", operators(3))
    for a, b, only in (("a", "b", "B"), ("b", "a", "A")):
        code, record, _ = diff(tmp_path / a, tmp_path / b)
        operator = record["first_difference"]["operator"]  # type: ignore[index]
        assert (code, operator["name"], operator["only_in"]) == (1, "aten.a", only)
    assert diff(tmp_path / "b", tmp_path / "b")[0] == 0


def a_pipe(path: Path) -> None:
    os.mkfifo(path)


def a_link_to_a_pipe(path: Path) -> None:
    os.mkfifo(path.with_name("pipe"))
    os.symlink("pipe", path)


def a_broken_link(path: Path) -> None:
    os.symlink("nothing", path)


def a_device(path: Path) -> None:
    os.symlink("/dev/zero", path)


def a_folder(path: Path) -> None:
    path.mkdir()


def many_strings(path: Path) -> None:
    path.write_bytes(head() + b"".join(strings([""] * 100_000) for _ in range(11)))


def many_blocks(path: Path) -> None:
    path.write_bytes(head() + block(b"????", 0, b"") * 2_000_000)


@pytest.mark.skipif(os.name != "posix", reason="needs pipes")
@pytest.mark.parametrize(
    "make", [a_pipe, a_link_to_a_pipe, a_broken_link, a_device, a_folder, many_strings, many_blocks]
)
def test_what_lies_in_the_place_of_a_trace(make: Callable[[Path], None], tmp_path: Path) -> None:
    write(tmp_path / "a" / "main.trace", operators(10))
    (tmp_path / "b").mkdir()
    make(tmp_path / "b" / "main.trace")
    code, _, said = diff(tmp_path / "a", tmp_path / "b")
    assert code == (1 if make is many_blocks else 2)  # a whole trace without any operator
    if make is not many_blocks:
        assert "main.trace" in said or "more than" in said


def test_more_processes_than_descriptors(tmp_path: Path) -> None:
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    for side in "ab":
        for number in range(100):
            write(tmp_path / side / f"{number}.trace", operators(3), role=f"main/sub~{number}".encode())
    resource.setrlimit(resource.RLIMIT_NOFILE, (60, limit[1]))
    try:
        assert diff(tmp_path / "a", tmp_path / "b")[0] == 0
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limit)

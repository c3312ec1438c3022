"""Runs of so many processes that their traces fit neither into memory nor into the descriptors of a process."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from samerun.record.comparison.compare import find_first_difference
from samerun.record.trace import format as f
from samerun.record.trace import reader
from samerun.record.trace.reader import Trace, TraceError
from samerun.record.trace.run import RunTraces
from samerun.record.trace.writer import TraceWriter


def write_run(folder: Path, ranks: int, changed: int | None = None) -> Path:
    folder.mkdir()
    for rank in range(ranks):
        writer = TraceWriter(str(folder / f"rank{rank}.trace"), f"rank{rank}")
        for number in range(50):
            values = number, (rank == changed and number > 20).to_bytes(16, "little")
            writer.append(f.EVENT.pack(f.OPERATOR, 0, 0, writer.intern_string("aten.add"), 0, 0, *values))
        writer.close()
    return folder


@pytest.fixture(params=[1 << 20, 0], ids=["read", "mapped"])
def few_are_held(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader, "MAX_BYTES_READ_WHOLE", request.param)
    monkeypatch.setattr(reader, "MAX_HELD_FILES", 3)


def test_traces_are_read_again_when_they_are_needed(few_are_held: None, tmp_path: Path) -> None:
    a, b = write_run(tmp_path / "a", 8), write_run(tmp_path / "b", 8, changed=5)
    before = len(os.listdir("/proc/self/fd")) if Path("/proc/self/fd").exists() else 0
    runs = RunTraces(a), RunTraces(b)
    held = [trace for run in runs for trace in run.traces.values() if trace._data is not None]
    assert len(held) <= 3
    if before:
        assert len(os.listdir("/proc/self/fd")) <= before + 4
    found = find_first_difference(*runs)
    assert found is not None and found.event is not None and (found.role, found.event.index) == ("rank5", 21)
    assert runs[0].operator_count() == 8 * 50


def test_memory_is_limited(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    folder = write_run(tmp_path / "a", 8)
    size = (folder / "rank0.trace").stat().st_size
    monkeypatch.setattr(reader, "MAX_HELD_BYTES", 2 * size)
    reader._held.clear()
    run = RunTraces(folder)
    assert sum(trace._data is not None for trace in run.traces.values()) == 2


@pytest.mark.parametrize("what", ["removed", "replaced", "cut"])
def test_a_trace_that_is_another_file_by_then_is_an_error(what: str, tmp_path: Path) -> None:
    path = write_run(tmp_path / "a", 1) / "rank0.trace"
    trace = Trace(path)
    trace.release_content()
    raw = path.read_bytes()
    if what == "cut":
        path.write_bytes(raw[:-100])
    else:
        path.rename(tmp_path / "kept")
        if what == "replaced":
            path.write_bytes(raw)
    with pytest.raises(TraceError, match="cannot be read" if what == "removed" else "was changed while it was read"):
        trace.read_all_events()

"""How long it takes to compare two long traces, and how much memory.

Writes two traces of N events that differ in the last one, compares them in a fresh process and prints
seconds and peak memory:

    python benchmarks/bench_compare.py [N]
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from result_tables import Results, add_json_option

from samerun.record.comparison.compare import find_first_difference
from samerun.record.trace import format as f
from samerun.record.trace.reader import EVENT_DTYPE
from samerun.record.trace.run import RunTraces
from samerun.record.trace.writer import TraceWriter

BLOCK_EVENTS = 256
"""As many as the recorder writes at once."""


def write(folder: Path, count: int, last: int) -> None:
    """A trace of `count` operators, every hundredth event a step; the last one's output is `last`."""
    folder.mkdir()
    writer = TraceWriter(str(folder / "main.trace"), "main")
    names = [writer.intern_string(f"aten.operator{i}") for i in range(100)]
    places = [writer.intern_location("train.py", line, f"layers.{line % 12}") for line in range(1, 200)]
    writer.flush()
    random = np.random.default_rng(0)
    for start in range(0, count, BLOCK_EVENTS):
        events = np.zeros(min(BLOCK_EVENTS, count - start), EVENT_DTYPE)
        at = np.arange(start, start + len(events))
        events["kind"] = np.where(at % 100 == 99, f.STEP, f.OPERATOR)
        events["name"] = np.take(names, at % len(names))
        events["location"] = np.take(places, at % len(places))
        events["inputs"] = events["out0"] = random.integers(0, 1 << 63, len(events), dtype=np.uint64)
        if start + len(events) == count:
            events[-1]["kind"], events[-1]["out1"] = f.OPERATOR, last
        raw = events.tobytes()
        writer._write(f.BLOCK.pack(f.EVENTS, len(events), len(raw)) + raw)
    writer.close()


COLUMNS = {"events": "", "s": ".2f", "peak memory, GiB": ".2f"}


def measure(folder: Path, count: int) -> None:
    """Compare the two and print seconds and GiB; in a process of its own, for the peak to mean something."""
    begin = time.perf_counter()
    difference = find_first_difference(RunTraces(folder / "a"), RunTraces(folder / "b"))
    seconds = time.perf_counter() - begin
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1 << 20)
    assert difference is not None and difference.what == "outputs"
    assert difference.event is not None and difference.event.index == count - 1
    print(seconds, peak)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("count", nargs="?", type=int, default=10_000_000, metavar="N")
    parser.add_argument("folder", nargs="?", type=Path, help="with both traces; else they are written first")
    add_json_option(parser)
    options = parser.parse_args()
    count = options.count
    if options.folder:
        measure(options.folder, count)
        return
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write(folder / "a", count, 1)
        write(folder / "b", count, 2)
        words = [sys.executable, __file__, str(count), name]
        told = subprocess.run(words, check=True, stdout=subprocess.PIPE, text=True).stdout
        with Results(options.json) as results:
            table = results.table("two traces that differ in the last event", COLUMNS)
            table.add(f"{count:,}", *map(float, told.split()))


if __name__ == "__main__":
    main()

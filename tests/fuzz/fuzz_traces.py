"""Hostile traces: each is compared, or refused with a SamerunError.

    python tests/fuzz/fuzz_traces.py [--count 20000] [--seed 0]

Changes of the bytes, and changes of single fields of events, strings and places that keep the file readable.
"""

from __future__ import annotations

import contextlib
import os
import random
import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "src"))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))

import numpy as np
from fuzz_options import count_and_seed
from hostile_traces import block, head, places, strings
from rich.console import Console

from samerun.base.errors import SamerunError
from samerun.record.receipt.assemble import build_process_section
from samerun.record.receipt.diff import describe_first_difference, diff_runs, load_run
from samerun.record.trace import format as f
from samerun.record.trace.reader import EVENT_DTYPE, Trace
from samerun.report import receipts as shown_receipts

QUIET = open(os.devnull, "w")  # noqa: SIM115
TEXTS: list[str | bytes] = ["train.py", "aten.mm", "aten.add", "torch:cpu", "params", "main/pool-1#1", "main/t", "rows"]
ROWS = [(1, 1, 0), (1, 2, 2), (0, 0, 0), (1, 9, 8)]  # the third is number 0, too
NUMBERS = [0, 1, 2, 5, 255, (1 << 16) - 1, 1 << 16, (1 << 31) - 1, 1 << 31, (1 << 32) - 1, 1 << 62, (1 << 64) - 1]
ODD_TEXTS: list[str | bytes] = [
    "",
    "\x1b[2J",
    "\u202e",
    "main/",
    "/",
    "//pool-",
    "main/pool-x",
    "a\0b",
    "x" * 70_000,
    b"\xff\xfe",
    "../../etc/passwd",
    "/dev/zero",
    "{",
    '{"kind": 1}',
    "main/loader0.worker1",
]


def make_events(count: int, chance: random.Random) -> Any:
    """Events of every kind on three threads."""
    events = np.zeros(count, EVENT_DTYPE)
    kinds = [f.OPERATOR] * 30 + sorted(f.KIND_NAMES)
    for at in range(count):
        events[at]["kind"] = chance.choice(kinds)
        events[at]["flags"] = chance.choice([0, 1, 2, 8, 16, 32, 64, 128])
        events[at]["thread"] = chance.choice([0, 0, 0, 1, 2])
        events[at]["name"], events[at]["location"] = chance.randint(1, len(TEXTS)), chance.randint(0, len(ROWS))
        events[at]["aux"], events[at]["inputs"] = chance.randint(0, len(TEXTS)), chance.choice([at, 1, 2])
        events[at]["out0"] = at
    return events


def to_bytes(events: Any, texts: list[str | bytes], rows: list[tuple[int, int, int]], role: bytes = b"main") -> bytes:
    content = head(role) + strings(texts) + places(rows)
    return content + block(f.EVENTS, len(events), events.tobytes()) + block(f.END, len(events), b"")


def changed_fields(events: Any, chance: random.Random) -> bytes:
    events, texts, rows = events.copy(), list(TEXTS), list(ROWS)
    for _ in range(chance.randint(1, 4)):
        draw = chance.random()
        if draw < 0.6:
            field = chance.choice(list(EVENT_DTYPE.names or ()))
            largest = int(np.iinfo(EVENT_DTYPE[field]).max)
            events[chance.randrange(len(events))][field] = min(chance.choice(NUMBERS), largest)
        elif draw < 0.75:
            texts[chance.randrange(len(texts))] = chance.choice(ODD_TEXTS)
        elif draw < 0.85:
            row = [min(chance.choice(NUMBERS), (1 << 32) - 1) for _ in range(3)]
            rows[chance.randrange(len(rows))] = (row[0], row[1], row[2])
        else:
            begin, end = sorted(chance.randrange(len(events)) for _ in range(2))
            part = chance.choice([events[:0], np.concatenate([events[begin:end]] * 2)])
            events = np.concatenate([events[:begin], part, events[end:]])
    role = chance.choice([b"main"] * 8 + [b"rank0", b"", b"\xff", b"main/loader0.worker0", b"\x1b[2J"])
    return to_bytes(events, texts, rows, role)


def changed_bytes(good: bytes, chance: random.Random) -> bytes:
    raw = bytearray(good)
    for _ in range(chance.randint(1, 3)):
        at = chance.choice([chance.randrange(len(raw)), chance.randrange(min(len(raw), 900))])
        end = min(len(raw), at + chance.choice([1, 1, 4, 8, 40]))
        raw[at:end] = chance.choice([bytes(end - at), b"\xff" * (end - at), chance.randbytes(end - at), b""])
    return bytes(raw)[: chance.choice([None, None, None, chance.randrange(len(raw) + 1)])]


def read_all(data: bytes, folder: Path) -> bool:
    """Everything that reads the trace of a stranger, on these bytes. Whether it was compared."""
    (folder / "b" / "main.trace").write_bytes(data)
    taken = False
    for one, other in (("a", "b"), ("b", "a"), ("b", "b")):
        with contextlib.suppress(SamerunError):
            record = diff_runs(load_run(folder / one), load_run(folder / other))
            assert one != other or record["verdict"] == "same", "a run differs from itself"
            describe_first_difference(record)
            shown_receipts.show_diff(record, Console(file=QUIET))
            taken = True
    with contextlib.suppress(SamerunError):
        build_process_section(Trace(folder / "b" / "main.trace"))
    return taken


def prepare(folder: Path, seed: int = 0) -> Any:
    """A trace to compare with; returns its events."""
    events = make_events(60, random.Random(seed))
    for name in "ab":
        (folder / name).mkdir()
        (folder / name / "main.trace").write_bytes(to_bytes(events, TEXTS, ROWS))
    return events


def run(count: int, seed: int) -> tuple[int, int]:
    """Returns how many were compared, and how many refused."""
    chance = random.Random(seed)
    taken = 0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        events = prepare(folder, seed)
        good = to_bytes(events, TEXTS, ROWS)
        assert read_all(good, folder)
        for number in range(count):
            data = changed_fields(events, chance) if chance.random() < 0.7 else changed_bytes(good, chance)
            try:
                taken += read_all(data, folder)
            except Exception:
                Path(f"crash-trace-{seed}-{number}.bin").write_bytes(data)
                raise
    return taken, count - taken


def main() -> None:
    taken, refused = run(*count_and_seed(__doc__ or ""))
    print(f"{taken} traces were compared, {refused} refused")


if __name__ == "__main__":
    main()

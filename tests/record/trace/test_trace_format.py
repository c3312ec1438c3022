"""The page docs/reference/trace-format.md, put to the test: a reader written from it alone."""

from __future__ import annotations

import os
import struct
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest
import torch
from repository_paths import ROOT
from xxhash import xxh3_64_intdigest, xxh3_128_digest

from samerun.record.digests.digest import digest, digest_on_device, shape_seed
from samerun.record.trace import format as f
from samerun.record.trace.reader import Trace, TraceError
from samerun.record.trace.writer import FLUSH_EVENTS, TraceWriter

# --- a reader that knows the page and nothing else -------------------------------------------------------


@dataclass
class Page:
    """What the page says a trace holds."""

    role: str = ""
    pid: int = 0
    status: str = ""
    complete: bool = False
    strings: list[str] = field(default_factory=lambda: [""])
    places: list[tuple[str, int, str]] = field(default_factory=lambda: [("", 0, "")])
    events: list[tuple[int, int, int, int, int, int, int, bytes]] = field(default_factory=list)


def read(data: bytes) -> Page:
    """Read a trace by the page; ValueError for what it calls no trace or damage."""
    page = Page()
    if len(data) < 512 or data[:8] != b"SAMERUN\x01":
        raise ValueError("no trace")
    version, role_length = struct.unpack_from("<II", data, 8)
    if version != 1:
        raise ValueError("another version")
    page.role = data[16 : 16 + role_length].decode()
    page.pid = struct.unpack_from("<Q", data, 272)[0]
    page.status = data[280:512].split(b"\0")[0].decode()
    at = 512
    while len(data) - at >= 16:
        tag, entries, length = struct.unpack_from("<4sIQ", data, at)
        payload = data[at + 16 : at + 16 + length]
        if len(payload) < length:
            break
        at += 16 + length
        if tag == b"STRS":
            read_strings(page, payload, entries)
        elif tag == b"PLCS":
            if length != 12 * entries:
                raise ValueError("damaged places")
            for file, line, module in struct.iter_unpack("<III", payload):
                if file >= len(page.strings) or module >= len(page.strings):
                    raise ValueError("a place names a string not yet seen")
                page.places.append((page.strings[file], line, page.strings[module]))
        elif tag == b"EVTS":
            if length != 40 * entries:
                raise ValueError("damaged events")
            page.events.extend(struct.iter_unpack("<BBHIIIQ16s", payload))
        elif tag == b"END.":
            page.complete = True
            assert entries == len(page.events) % 2**32
    return page


def read_strings(page: Page, payload: bytes, entries: int) -> None:
    here = 0
    for _ in range(entries):
        if here + 4 > len(payload):
            raise ValueError("damaged strings")
        size = struct.unpack_from("<I", payload, here)[0]
        page.strings.append(payload[here + 4 : here + 4 + size].decode("utf-8", "surrogateescape"))
        here += 4 + size


# --- the two readers side by side ------------------------------------------------------------------------


def assert_alike(path: Path) -> Page:
    """Both readers give the same for one file."""
    page, trace = read(path.read_bytes()), Trace(path)
    assert (page.role, page.pid, page.status, page.complete) == (trace.role, trace.pid, trace.failure, trace.complete)
    assert page.strings == trace.strings
    assert page.places == trace.locations
    assert len(page.events) == trace.count
    raw = b"".join(struct.pack("<BBHIIIQ16s", *event) for event in page.events)
    assert raw == trace.read_all_events().tobytes()
    for kind, flags, thread, name, place, aux, inputs, outputs in page.events:
        assert name < len(page.strings) and place < len(page.places)
        assert 1 <= kind <= max(f.KIND_NAMES) and flags & f.PHASE_MASK < len(f.PHASES)
        assert (thread, aux >= 0, inputs >= 0, len(outputs)) == (thread, True, True, 16)
    return page


def write_events(writer: TraceWriter, number: int) -> None:
    """One event of every kind, with strings and places of its own."""
    for kind in sorted(f.KIND_NAMES):
        name = writer.intern_string(f"aten.op{kind}.round{number}")
        place = writer.intern_location(f"train{number}.py", kind, "" if kind % 2 else f"encoder.{number}")
        phase = kind % len(f.PHASES)
        outputs = xxh3_128_digest(bytes([kind, number]))
        writer.append(f.EVENT.pack(kind, phase | f.DIRECT, kind % 3, name, place, kind * 7, 2**64 - kind, outputs))


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    """A whole trace of two rounds of strings, places and events."""
    path = tmp_path / "main.trace"
    writer = TraceWriter(str(path), "main/loader1.worker0")
    writer.flush_at = FLUSH_EVENTS  # as later in a trace; the first events have a block each
    writer.intern_string("größer \udc80 path")
    for number in (1, 2):
        write_events(writer, number)
        writer.flush()
    writer.close()
    return path


def blocks_of(data: bytes) -> list[tuple[int, bytes, int]]:
    """(where it begins, tag, where it ends) of every block."""
    found, at = [], 512
    while at < len(data):
        tag, _, length = struct.unpack_from("<4sIQ", data, at)
        found.append((at, tag, at + 16 + length))
        at += 16 + length
    return found


def test_a_whole_trace(trace: Path) -> None:
    page = assert_alike(trace)
    assert page.complete and page.role == "main/loader1.worker0" and page.pid == os.getpid() and not page.status
    assert [event[0] for event in page.events] == sorted(f.KIND_NAMES) * 2
    assert page.strings[1] == "größer \udc80 path"
    kind, flags, _, name, place, *_ = page.events[0]
    assert (kind, flags) == (1, 1 | 8)
    assert page.strings[name] == "aten.op1.round1" and page.places[place] == ("train1.py", 1, "")
    assert [tag for _, tag, _ in blocks_of(trace.read_bytes())] == [b"STRS", b"PLCS", b"EVTS"] * 2 + [b"END."]


def test_cut_off_at_every_byte_of_the_last_blocks(trace: Path) -> None:
    data = trace.read_bytes()
    *_, (last_events, tag, _), (end, end_tag, _) = blocks_of(data)
    assert (tag, end_tag) == (b"EVTS", b"END.")
    once = len(f.KIND_NAMES)
    cut = trace.with_name("cut.trace")
    for size in range(last_events, len(data)):
        cut.write_bytes(data[:size])
        page = assert_alike(cut)
        assert not page.complete and len(page.events) == (2 * once if size >= end else once)


def test_cut_off_in_strings_and_places(trace: Path) -> None:
    data = trace.read_bytes()
    cut = trace.with_name("cut.trace")
    for begin, _, end in blocks_of(data)[3:5]:
        for size in {begin, begin + 1, begin + 15, begin + 16, begin + 17, end - 1}:
            cut.write_bytes(data[:size])
            assert len(assert_alike(cut).events) == len(f.KIND_NAMES)


def test_unknown_blocks_are_passed_over(trace: Path) -> None:
    data = trace.read_bytes()
    before = read(data)
    stranger = struct.pack("<4sIQ", b"NEW!", 3, 5) + b"EVTS\0"
    empty = struct.pack("<4sIQ", b"\xff\0zz", 0, 0)
    parts = [data[:512]] + [data[begin:end] for begin, _, end in blocks_of(data)]
    mixed = trace.with_name("mixed.trace")
    mixed.write_bytes(stranger.join(parts) + empty)
    page = assert_alike(mixed)
    assert page == before


def test_a_failure_stands_in_the_header(tmp_path: Path) -> None:
    path = tmp_path / "main.trace"
    writer = TraceWriter(str(path), "main")
    write_events(writer, 1)
    writer.flush()
    writer.close_with_failure_in_header("the trace could not be written: No space left on device")
    page = assert_alike(path)
    assert page.status.endswith("No space left on device") and not page.complete and page.events


@pytest.mark.parametrize("damage", ["no magic", "short", "version", "events", "places", "unseen string", "strings"])
def test_damage_is_an_error_to_both(trace: Path, damage: str) -> None:
    data = bytearray(trace.read_bytes())
    strings, places, events = (begin for begin, _, _ in blocks_of(bytes(data))[:3])
    if damage == "no magic":
        data[0] = 0
    elif damage == "short":
        del data[511:]
    elif damage == "version":
        data[8] = 2
    elif damage == "unseen string":
        struct.pack_into("<I", data, places + 16, 10_000)
    else:  # one entry more than there is
        at = {"events": events, "places": places, "strings": strings}[damage] + 4
        struct.pack_into("<I", data, at, struct.unpack_from("<I", data, at)[0] + 1)
    trace.write_bytes(data)
    with pytest.raises(ValueError):
        read(bytes(data))
    with pytest.raises(TraceError):
        Trace(trace)


# --- the digests that the page describes -----------------------------------------------------------------

TENSORS = [
    torch.tensor([[1.0, -0.0, 3.5], [2.0, float("nan"), 0.0]]),
    torch.arange(5),
    torch.tensor(2.5, dtype=torch.bfloat16),
    torch.arange(7, dtype=torch.uint8),
    torch.empty(0, 3),
]


def seed_of(tensor: torch.Tensor) -> int:
    return xxh3_64_intdigest(f"{tensor.dtype}{tuple(tensor.shape)}".encode())


def raw(tensor: torch.Tensor) -> bytes:
    return tensor.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes() if tensor.numel() else b""


def test_seed_is_of_the_text_of_dtype_and_shape() -> None:
    assert shape_seed(torch.float32, torch.Size([2, 3])) == xxh3_64_intdigest(b"torch.float32(2, 3)")
    assert shape_seed(torch.int64, torch.Size([5])) == xxh3_64_intdigest(b"torch.int64(5,)")
    assert shape_seed(torch.float32, torch.Size([])) == xxh3_64_intdigest(b"torch.float32()")


@pytest.mark.parametrize("tensor", TENSORS, ids=lambda t: f"{t.dtype}{tuple(t.shape)}")
def test_digest_of_a_tensor(tensor: torch.Tensor) -> None:
    assert digest(tensor) == xxh3_128_digest(raw(tensor), seed_of(tensor))
    if tensor.dim() == 2:
        assert digest(tensor.t()) == xxh3_128_digest(raw(tensor.t()), seed_of(tensor.t()))


@pytest.mark.parametrize("tensor", TENSORS, ids=lambda t: f"{t.dtype}{tuple(t.shape)}")
def test_digest_on_a_device(tensor: torch.Tensor) -> None:
    data, mask = raw(tensor), 2**64 - 1
    data += b"\0" * (-len(data) % 4)

    def mix(x: int) -> int:
        x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & mask
        x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & mask
        return x ^ (x >> 31)

    low = high = 0
    for k, word in enumerate(np.frombuffer(data, "<i4").tolist(), 1):
        low += mix((word & mask) ^ mix(k * 0x9E3779B97F4A7C15 & mask))
        high += mix((word & mask) ^ mix(k * 0xD1B54A32D192ED03 & mask))
    text = b"".join((n & mask).to_bytes(8, "little") for n in (low, high)) if tensor.numel() else b""
    assert digest_on_device(tensor, seed_of(tensor)) == xxh3_128_digest(text, seed_of(tensor))


def test_inputs_that_are_not_contiguous() -> None:
    from samerun.record.digests.storages import StorageDigests

    storages = StorageDigests()
    made = torch.arange(6, dtype=torch.float32).reshape(2, 3)
    record = storages.find_or_add_record(made, True)
    content = storages.digest_new_memory(made, record, 0)
    assert content == digest(made)
    geometry = b"(0, torch.Size([3, 2]), (1, 3), torch.float32)"
    assert storages.digest_input(made.t(), record) == xxh3_128_digest(content + geometry)
    part = made[0]
    part += 1
    written = storages.digest_written(part, record, 0)
    content = xxh3_128_digest(content + b"(0, torch.Size([3]), torch.float32)" + digest(part))
    assert written == digest(part)
    assert storages.digest_input(made.t(), record) == xxh3_128_digest(content + geometry)
    assert storages.digest_input(made, record) == digest(made)


def test_every_kind_and_phase_stands_in_the_page() -> None:
    page = (ROOT / "docs/reference/trace-format.md").read_text(encoding="utf-8")
    for number, name in f.KIND_NAMES.items():
        assert f"| {number} | {name} |" in page
    for number, phase in enumerate(f.PHASES):
        assert f"{number} {phase}" in " ".join(page.split())

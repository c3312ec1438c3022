"""Digests of large memory: the C library, the xxhash package and the streaming form agree."""

from __future__ import annotations

import ctypes
import subprocess
import sys
import threading
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from xxhash import xxh3_128_digest

from samerun.record.digests import pieces
from samerun.record.digests.digest import digest
from samerun.record.digests.pieces import LARGE, PIECE, IncrementalDigest, digest_by_pieces, digest_each_piece_in_python

SIZES = [LARGE, LARGE + 1, LARGE + 63, 3 * PIECE - 1, 3 * PIECE, 7 * PIECE + 12345, 64 * PIECE + 1]
SEEDS = [0, 1, 12345678901234567890, 2**64 - 1]


def memory(size: int, seed: int = 0) -> np.ndarray[Any, Any]:
    return np.random.default_rng(seed).integers(0, 256, size, dtype=np.uint8)


def as_written_down(raw: bytes, seed: int) -> bytes:
    """The words of docs/reference/trace-format.md, in the plainest code."""
    count = len(raw) // PIECE
    parts = [raw[PIECE * n : PIECE * (n + 1) if n < count - 1 else len(raw)] for n in range(count)]
    return xxh3_128_digest(b"".join(xxh3_128_digest(part) for part in parts), seed)


def test_the_library_was_built() -> None:
    """`make setup` builds it; without a compiler everything else here still has to pass."""
    assert pieces.try_load_piece_digest_function() is not None


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("size", SIZES)
def test_all_ways_agree(size: int, seed: int) -> None:
    data = memory(size)
    expected = as_written_down(data.tobytes(), seed)
    assert digest_by_pieces(data.ctypes.data, size, seed) == expected
    assert xxh3_128_digest(digest_each_piece_in_python(data.ctypes.data, size), seed) == expected
    for part in (size, PIECE, 1000, 65537):
        running = IncrementalDigest(size, seed)
        for start in range(0, size, part):
            running.update(memoryview(data[start : start + part]))
        assert running.digest() == expected


@pytest.mark.parametrize("size", [0, 1, 240, 241, 5000, PIECE, LARGE - 1])
def test_small_memory_is_one_piece(size: int) -> None:
    data = memory(size)
    running = IncrementalDigest(size, 3)
    running.update(memoryview(data))
    assert running.digest() == xxh3_128_digest(data.tobytes(), 3)


@pytest.mark.skipif(pieces.try_load_piece_digest_function() is None, reason="the C library was not built")
@settings(deadline=None, max_examples=60)
@given(
    size=st.integers(241, 9000), piece=st.integers(241, 3000), seed=st.integers(0, 2**64 - 1), shift=st.integers(0, 7)
)
def test_pieces_of_any_size(size: int, piece: int, seed: int, shift: int) -> None:
    """Every length of tail, at every alignment."""
    piece = min(piece, size)
    data = memory(size + shift, size)[shift:]
    out = ctypes.create_string_buffer(16 * (size // piece))
    pieces.try_load_piece_digest_function()(data.ctypes.data, size, piece, seed, out, None, 1)
    raw, count = data.tobytes(), size // piece
    for n in range(count):
        part = raw[n * piece : (n + 1) * piece if n < count - 1 else size]
        assert out.raw[16 * n : 16 * n + 16] == xxh3_128_digest(part, seed)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="elsewhere torch's OpenMP is another library's")
def test_threads_are_borrowed_and_change_nothing() -> None:
    tensor = torch.randn(1 << 20)
    before = torch.get_num_threads()
    found = {}
    try:
        for threads in (1, 2, 3, 8):
            torch.set_num_threads(threads)
            team, count = pieces._find_openmp_team_and_thread_count()
            assert team is not None and count == threads
            found[threads] = digest(tensor)
    finally:
        torch.set_num_threads(before)
    other: list[Any] = []
    thread = threading.Thread(
        target=lambda: other.append((pieces._find_openmp_team_and_thread_count(), digest(tensor)))
    )
    thread.start()
    thread.join()
    assert other == [((None, 1), found[1])]
    assert set(found.values()) == {found[1]}


def test_a_forked_child_computes_alone() -> None:
    """A team that the parent has used hangs in its child."""
    program = """
import faulthandler, os, torch
faulthandler.dump_traceback_later(200, exit=True)
from samerun.record.digests.digest import digest
tensor = torch.ones(1 << 20)
torch.set_num_threads(2)
expected = digest(tensor * 1)
child = os.fork()
if child == 0:
    os._exit(0 if digest(tensor) == expected else 3)
raise SystemExit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    assert subprocess.run([sys.executable, "-c", program], timeout=300).returncode == 0


def test_large_views_stream_to_the_same_digest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("samerun.record.digests.digest._CHUNK_BYTES", 1 << 16)
    base = torch.randn(300, 400, 2)
    for view in (base.transpose(0, 1), base[:, ::2], base.permute(2, 0, 1)):
        assert view.nbytes >= LARGE
        assert digest(view) == digest(view.contiguous())


def test_large_memory_is_digested_where_torch_is_not_loaded() -> None:
    program = (
        "import ctypes, sys; from samerun.record.digests import pieces; n = 4 * pieces.PIECE; "
        "memory = ctypes.create_string_buffer(n); given = ctypes.addressof(memory), n; "
        "assert pieces.digest_each_piece(*given) == pieces.digest_each_piece_in_python(*given); "
        "assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)

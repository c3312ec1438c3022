"""Digest large memory in pieces: by a small C library where it was built, else by the xxhash package.

The C library borrows the OpenMP threads that torch computes with. They are awake between two operators
(waking others would cost more than they save), and the core that wrote a piece often still holds it.
"""

from __future__ import annotations

import ctypes
import sys
from functools import cache
from typing import Any

from xxhash import xxh3_128, xxh3_128_digest

from samerun.base import native
from samerun.base.native import try_load_built_library

PIECE = 1 << 16
"""Bytes. Memory of at least two pieces is digested in pieces; the last one takes the remainder (decision 0010)."""
LARGE = 2 * PIECE

_classes: dict[int, Any] = {}
_in_child = False


def ctypes_buffer_class(byte_count: int) -> Any:
    """The ctypes class for so many bytes. Kept: making one takes 20 us and leaves a reference cycle to collect."""
    found = _classes.get(byte_count)
    if found is None:
        if len(_classes) > 1 << 14:
            _classes.clear()
        found = _classes[byte_count] = ctypes.c_char * byte_count
    return found


def digest_by_pieces(address: int, byte_count: int, seed: int) -> bytes:
    """XXH3-128 with `seed` over the XXH3-128 of the pieces; 16 bytes. `byte_count` is at least `LARGE`."""
    return xxh3_128_digest(digest_each_piece(address, byte_count), seed)


def digest_each_piece(address: int, byte_count: int) -> bytes:
    """16 bytes for each piece. They do not depend on the seed: any view of the same memory may use them again."""
    if _library_function is None:
        return digest_each_piece_in_python(address, byte_count)
    out = ctypes_buffer_class(byte_count // PIECE * 16)()
    team, threads = _find_openmp_team_and_thread_count()
    _library_function(address, byte_count, PIECE, 0, out, team, threads)
    return bytes(out)


def digest_each_piece_in_python(address: int, byte_count: int) -> bytes:
    """The same, by the xxhash package alone."""
    starts = range(0, byte_count - PIECE + 1, PIECE)
    ends = [*starts[1:], byte_count]
    parts = [
        xxh3_128_digest(ctypes_buffer_class(end - start).from_address(address + start))
        for start, end in zip(starts, ends, strict=True)
    ]
    return b"".join(parts)


class IncrementalDigest:
    """The digest of `size` bytes that arrive in parts of any length."""

    def __init__(self, size: int, seed: int) -> None:
        self._seed = seed
        self._last = max(size // PIECE - 1, 0)
        """Number of the last piece, which has no end; small memory is one piece, digested as it is."""
        self._digests: list[bytes] = []
        self._piece = xxh3_128(seed=0 if self._last else seed)
        self._room = PIECE

    def update(self, part: memoryview) -> None:
        while len(part):
            taken = len(part) if len(self._digests) == self._last else min(self._room, len(part))
            self._piece.update(part[:taken])
            self._room -= taken
            part = part[taken:]
            if self._room == 0 and len(self._digests) < self._last:
                self._end_piece()

    def _end_piece(self) -> None:
        self._digests.append(self._piece.digest())
        self._piece, self._room = xxh3_128(), PIECE

    def digest(self) -> bytes:
        if self._last == 0:
            return self._piece.digest()
        return xxh3_128_digest(b"".join([*self._digests, self._piece.digest()]), self._seed)


def try_load_piece_digest_function() -> Any:
    """The C function that digests pieces; None if it was not built."""
    library = try_load_built_library(__file__, "_digest")
    try:
        if library is None or not library.samerun_digest_init_if_little_endian():
            return None
        function: Any = library.samerun_digest_each_piece
        function.numbered = library.samerun_digest_set_omp_get_thread_num
    except AttributeError:  # built by another version
        return None
    u64 = ctypes.c_uint64
    function.argtypes = [ctypes.c_void_p, u64, u64, u64, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint32]
    function.restype = None
    return function


_library_function = try_load_piece_digest_function()


def _find_openmp_team_and_thread_count() -> tuple[Any, int]:
    """torch's OpenMP threads and their number, if they may be borrowed; else (None, 1)."""
    torch = sys.modules.get("torch")
    if torch is None or not native.may_use_torch_openmp_threads():
        return None, 1
    team = _get_gomp_parallel_address_or_none()
    return (None, 1) if team is None else (team, torch.get_num_threads())


def piece_digest_and_gomp_addresses() -> tuple[int, int]:
    """Where the C function and torch's `GOMP_parallel` lie, for other C code; 0 for what there is not."""
    team = _get_gomp_parallel_address_or_none()
    return (
        ctypes.cast(_library_function, ctypes.c_void_p).value or 0 if _library_function is not None else 0,
        team.value or 0 if team is not None else 0,
    )


@cache
def _get_gomp_parallel_address_or_none() -> Any:
    """torch's `GOMP_parallel`, once the C library was told how the threads of such a team are numbered."""
    number = native.omp_get_thread_num_address()
    if number is None:
        return None
    if _library_function is not None:  # loaded long ago: looking for a file here would be an event of the program's
        _library_function.numbered(number)
    return native.gomp_parallel_address()

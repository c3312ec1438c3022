"""The C library: levels, threads, forks. What its kernels compute stands in the other test_numerics_* files."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import threading
from collections.abc import Iterator

import numpy as np
import pytest

from samerun.base.errors import SamerunError
from samerun.numerics.kernels import library
from samerun.numerics.reference.random import philox_blocks, philox_words

needs_library = pytest.mark.skipif(not library.is_available(), reason="the C library was not built")


@pytest.fixture(autouse=True)
def best_level_afterwards() -> Iterator[None]:
    yield
    library.force_level(None)


def test_every_level_of_this_machine_can_be_forced() -> None:
    for name in library.supported_levels():
        library.force_level(name)
        assert library.current_level() == name
        assert library.is_available() == (name != "reference")


def test_a_level_that_cannot_run_is_refused_with_those_that_can() -> None:
    before = library.current_level()
    with pytest.raises(SamerunError, match=r"force_level\('sse9'\): this machine runs the levels reference"):
        library.force_level("sse9")
    assert library.current_level() == before


@pytest.mark.parametrize("name", ["reference", "plain", "avx2"])
def test_the_environment_chooses_a_level(name: str) -> None:
    if name not in library.supported_levels():
        pytest.skip(f"this machine does not run {name}")
    program = "from samerun.numerics.kernels import library; print(library.current_level())"
    environment = {**os.environ, "SAMERUN_NUMERICS_LEVEL": name}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == name


def test_loading_the_library_imports_neither_torch_nor_numpy() -> None:
    program = "import sys, samerun.numerics.kernels.library; print({'torch', 'numpy'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


WORK = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)


def parallel(n: int, grain: int, threads: int) -> tuple[list[int], int]:
    """How often each of 0..n-1 was worked on, and on how many threads."""
    pool = library.load_library_or_none()
    pool.samerun_set_num_threads(threads)
    library._pool_threads = threads
    counts, where = [0] * n, set()

    def work(_: object, start: int, end: int) -> None:
        where.add(threading.get_native_id())
        for i in range(start, end):
            counts[i] += 1

    pool.samerun_parallel_for.argtypes = [ctypes.c_int64, ctypes.c_int64, WORK, ctypes.c_void_p]
    pool.samerun_parallel_for(n, grain, WORK(work), None)
    return counts, len(where)


@needs_library
@pytest.mark.parametrize("threads", [1, 2, 7])
@pytest.mark.parametrize(("n", "grain"), [(0, 1), (1, 1), (5, 100), (1000, 1), (1000, 37)])
def test_the_pool_does_each_piece_once(n: int, grain: int, threads: int) -> None:
    counts, used = parallel(n, grain, threads)
    assert counts == [1] * n
    assert used <= threads


@needs_library
def test_the_pool_may_be_used_from_several_threads_at_once() -> None:
    results: list[tuple[list[int], int]] = []
    callers = [threading.Thread(target=lambda: results.append(parallel(500, 1, 3))) for _ in range(6)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert [counts for counts, _ in results] == [[1] * 500] * 6


@needs_library
@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_the_pool_works_in_a_forked_child() -> None:
    assert parallel(1000, 1, 2)[0] == [1] * 1000
    child = os.fork()
    if child == 0:
        os._exit(0 if parallel(1000, 1, 2)[0] == [1] * 1000 else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert parallel(1000, 1, 2)[0] == [1] * 1000


def test_philox_gives_the_published_numbers() -> None:
    """The known answers of Random123, where words of counter and key are listed low first."""
    assert philox_blocks(0, 0, [0]).tolist() == [[0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]]
    most = 2**64 - 1
    assert philox_blocks(most, most, [most]).tolist() == [[0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD]]
    seed, position, block = 0x299F31D0A4093822, 0x85A308D3243F6A88, 0x0370734413198A2E
    assert philox_blocks(seed, position, [block]).tolist() == [[0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1]]
    assert np.array_equal(philox_words(7, 3, 10), philox_blocks(7, 3, [0, 1, 2]).reshape(-1)[:10])

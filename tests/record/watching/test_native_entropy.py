"""Random bytes that native code draws from the system are found, held still, and else left as they are."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from check_command import check

from samerun.check.attribution.native_entropy import find_sql_random_literal_line_or_zero
from samerun.record.watching.native_entropy import (
    create_zeroed_counter_file,
    find_preload_library,
    make_preload_environment,
    write_pinned_random_device_file,
)

pytestmark = pytest.mark.skipif(find_preload_library() is None, reason="the library to preload was not built here")

DRAW = """
import ctypes, os
libc = ctypes.CDLL(None)
word = (ctypes.c_uint64 * 3)()
assert libc.getrandom(word, 12, 0) == 12
assert libc.getentropy(ctypes.byref(word, 12), 12) == 0
device = os.open("/dev/urandom", os.O_RDONLY | os.O_CLOEXEC)
libc.fopen.restype = ctypes.c_void_p
libc.fread.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t, ctypes.c_void_p]
other = (ctypes.c_char * 8)()
assert libc.fread(other, 1, 8, libc.fopen(b"/dev/random", b"r")) == 8
print(bytes(word).hex(), os.read(device, 16).hex(), bytes(other).hex(), os.urandom(8).hex())
handle = os.open("made", os.O_CREAT | os.O_WRONLY, 0o600)
os.close(handle)
assert os.stat("made").st_mode & 0o777 == 0o600 and os.path.exists("/dev/urandom")
"""

PROGRAM = """import ctypes

import torch

torch.manual_seed(0)
libc = ctypes.CDLL(None)


def native_seed():
    word = (ctypes.c_uint32 * 1)()
    libc.getrandom(word, 4, 0)
    return word[0]


first = native_seed()
print(torch.full((2,), USED % 1000).relu().sum() >= 0)
"""


def drawn(folder: Path, stream: Path | None) -> str:
    preload = find_preload_library()
    assert preload is not None
    environment = {**os.environ, **make_preload_environment(preload, os.environ, stream)}
    done = subprocess.run(
        [sys.executable, "-c", DRAW], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_held_still_every_way_to_draw_gives_the_same(tmp_path: Path) -> None:
    stream = tmp_path / "stream"
    write_pinned_random_device_file(stream)
    one, other = drawn(tmp_path, stream), drawn(tmp_path, stream)
    assert one == other
    parts = one.split()
    assert len(set(parts)) == 4 or parts[1][:16] == parts[2]  # both devices are the same file
    assert all(set(part) != {"0"} for part in parts)


def test_counted_nothing_is_changed(tmp_path: Path) -> None:
    pairs = zip(drawn(tmp_path, None).split(), drawn(tmp_path, None).split(), strict=True)
    assert all(one != other for one, other in pairs)


def test_draws_of_a_program_that_is_started_count_too(tmp_path: Path) -> None:
    preload, counter = find_preload_library(), tmp_path / "counter"
    assert preload is not None
    create_zeroed_counter_file(counter)
    environment = {**os.environ, **make_preload_environment(preload, os.environ, None, counter_file=counter)}
    started = "import os; os.urandom(3); os.urandom(3)"
    code = (
        "import ctypes, subprocess, sys\ncount = ctypes.CDLL(None).samerun_entropy_draw_count\nbefore = count()\n"
        f"subprocess.run([sys.executable, '-c', {started!r}])\nprint(count() - before)"
    )
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert int(done.stdout) >= 2
    assert int.from_bytes(counter.read_bytes(), sys.byteorder) >= int(done.stdout)


QUERIES = """import sqlite3
other = "random() words"


def pick(database):
    sql = "SELECT word FROM words"
    sql += " ORDER BY random() LIMIT 3"
    return database.execute(sql).fetchall()


def take(database):
    return database.execute("SELECT randomly FROM words").fetchall()
"""


@pytest.mark.parametrize(("line", "query"), [(8, 7), (12, 0)])
def test_a_query_that_draws_is_found_in_the_function(line: int, query: int, tmp_path: Path) -> None:
    (tmp_path / "p.py").write_text(QUERIES)
    (tmp_path / "q.py").write_text(QUERIES.replace("import sqlite3", "import math"))
    assert find_sql_random_literal_line_or_zero(str(tmp_path / "p.py"), line) == query
    assert find_sql_random_literal_line_or_zero(str(tmp_path / "q.py"), line) == 0


def test_other_libraries_stay_preloaded() -> None:
    preload = find_preload_library()
    assert preload is not None
    assert (
        make_preload_environment(preload, {"LD_PRELOAD": "/lib/other.so"}, None)["LD_PRELOAD"]
        == f"{preload}:/lib/other.so"
    )


@pytest.mark.exhaustive
def test_a_seed_from_native_code_is_named_with_its_line(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(PROGRAM.replace("USED", "first"))
    code, report = check(["--vary", "rerun", "train.py"], tmp_path)
    cause = report["cause"]
    assert code == 1 and (cause["kind"], cause["certain"], cause["file"]) == ("os-entropy", True, "train.py")
    assert cause["line"] == 1 + PROGRAM.splitlines().index("    libc.getrandom(word, 4, 0)")


@pytest.mark.slow
def test_bytes_that_reach_nothing_are_no_difference(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(PROGRAM.replace("USED", "7"))
    code, report = check(["--vary", "rerun", "train.py"], tmp_path)
    assert (code, report["verdict"], report["cause"]) == (0, "same", None)


STARTED = """import subprocess, sys
import torch

COMMANDS = {"shuf": ["shuf", "-i", "1-1000"], "python": [sys.executable, "-c", "import random; print(random.random())"]}
torch.manual_seed(0)
given = subprocess.check_output(COMMANDS[sys.argv[1]], text=True)
print(float(torch.tensor([float(word) for word in given.split()]).mul(2)[0]))
"""


@pytest.mark.exhaustive
@pytest.mark.parametrize(("command", "kind"), [("shuf", "os-entropy"), ("python", "unseeded-python")])
def test_what_a_started_program_draws_is_named_where_it_is_started(command: str, kind: str, tmp_path: Path) -> None:
    """Importing torch draws such bytes too; the line of the import was named."""
    (tmp_path / "train.py").write_text(STARTED)
    code, report = check(["--vary", "rerun", "train.py", command], tmp_path)
    cause = report["cause"]
    assert (code, cause["kind"], cause["line"]) == (1, kind, 6), cause

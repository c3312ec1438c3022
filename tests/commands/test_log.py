"""`samerun log` and its index."""

from __future__ import annotations

import importlib.util
import json
import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from check_command import samerun
from repository_paths import SUPPORT
from sample_receipts import made, section

from samerun.base.errors import SamerunError
from samerun.record.receipt import index, receipt_file, receipt_json, receipt_summary, remote


def put(folder: Path, name: str, began: str, word: str = "train.py", **parts: Any) -> None:
    given = {"command": {"form": "script", "words": [word]}, "circumstances": {"began": began, "host": "h"}}
    receipt_file.write(folder / name, made(**{**given, **parts}))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    put(tmp_path, "c.json", "2026-01-03", "other.py")
    put(tmp_path, "a.json", "2026-01-01")
    put(tmp_path, "b.json", "2026-01-02", ending={"exit_code": None, "signal": 9}, read_errors=["cut off"])
    (tmp_path / "notes.json").write_text("{}")
    (tmp_path / "text.txt").write_text("no receipt")
    return tmp_path


def names(found: list[index.ReceiptSummary]) -> list[str]:
    return [one.file for one in found]


def test_the_newest_stand_last(folder: Path) -> None:
    assert names(index.update_and_list_receipts(folder)) == ["notes.json", "a.json", "b.json", "c.json"]
    assert names(index.update_and_list_receipts(folder, "train")) == ["a.json", "b.json"]
    assert names(index.update_and_list_receipts(folder, "train", 1)) == ["b.json"]
    assert index.update_and_list_receipts(folder, "%") == []
    killed = index.update_and_list_receipts(folder, "train", 1)[0]
    assert (killed.ended, killed.complete, killed.steps, killed.torch) == ("signal 9", False, 5, "2.13.0")
    assert index.update_and_list_receipts(folder)[0].problem


@pytest.fixture
def settled(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if every file had been written long ago."""
    monkeypatch.setattr(index, "SETTLED_NS", -10_000_000_000)


@pytest.mark.usefixtures("settled")
def test_what_is_new_changed_or_gone_is_noticed(folder: Path) -> None:
    index.update_and_list_receipts(folder)
    assert len(index.update_and_list_receipts(folder, progress=not_called)) == 4
    put(folder, "d.json", "2026-01-04")
    (folder / "a.json").unlink()
    assert names(index.update_and_list_receipts(folder)) == ["notes.json", "b.json", "c.json", "d.json"]
    assert len(index.update_and_list_receipts(folder, progress=not_called)) == 4


def not_called(done: int, of: int) -> None:
    raise AssertionError("a receipt that was known was read again")


@pytest.mark.usefixtures("settled")
@pytest.mark.parametrize("newest", [None, 1])
def test_a_file_written_to_in_place_is_noticed(folder: Path, newest: int | None) -> None:
    """The folder's time stays as it was, and so do the file's size and time of writing."""
    index.update_and_list_receipts(folder, newest_count=newest)
    raw, info = (folder / "a.json").read_bytes(), (folder / "a.json").stat()
    before = folder.stat().st_mtime_ns
    time.sleep(0.05)
    (folder / "a.json").write_bytes(raw.replace(b"2026-01-01", b"2026-01-09").replace(b"train", b"abcde"))
    os.utime(folder / "a.json", ns=(info.st_atime_ns, info.st_mtime_ns))
    after = (folder / "a.json").stat()
    assert (after.st_size, after.st_mtime_ns, folder.stat().st_mtime_ns) == (info.st_size, info.st_mtime_ns, before)
    assert names(index.update_and_list_receipts(folder, "abcde", newest)) == ["a.json"]
    assert names(index.update_and_list_receipts(folder, newest_count=newest))[-1] == "a.json"


def test_what_was_just_written_is_read_again(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A second change in the same tick of the file system's clock, of the same size, leaves the same state."""
    same = {f"{name}/1/1/{time.time_ns()}" for name in ("a.json", "b.json")}
    monkeypatch.setattr(index, "scan_file_states", lambda *_: same)
    assert [one.command for one in index.update_and_list_receipts(folder)] == ["train.py", "train.py"]
    put(folder, "a.json", "2026-01-01", "again.py")
    assert [one.command for one in index.update_and_list_receipts(folder)] == ["again.py", "train.py"]


def test_the_c_library_sees_what_python_sees(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert index._load_folder_library() is not None, "not built: python setup.py build_ext --inplace"
    raw = os.fsencode(folder)
    for name in (b"\xff.json", b".json", b".hidden.json", b"x" * 250 + b".json", b"json", b"a\nb.json"):
        (open(raw + b"/" + name, "w")).close()
    os.utime(raw + b"/\xff.json", ns=(-5, -1_500_000_000))
    os.utime(raw + b"/a\nb.json", (0, 0))
    (folder / "folder.json").mkdir()
    (folder / "link.json").symlink_to("a.json")
    (folder / "nowhere.json").symlink_to("nothing")
    (folder / "circle.json").symlink_to("circle.json")
    (folder / "wrong.json").symlink_to("a.json/x")
    os.mkfifo(folder / "pipe.json")
    for room, each in ((index.BUFFER_BYTES, 5_000), (500, 2)):
        monkeypatch.setattr(index, "BUFFER_BYTES", room)
        monkeypatch.setattr(index, "FILES_PER_CALL", each)
        found = index.scan_file_states(folder)
        assert found == index.scan_file_states_in_python(folder) and len(found) == 8
    assert any(state.startswith("\udcff.json/-1500000000/0/") for state in found)
    for where in (folder / "nothing", folder / "a.json"):
        with pytest.raises(SamerunError, match="cannot be read"):
            index.scan_file_states(where)
        with pytest.raises(OSError):
            index.scan_file_states_in_python(where)
    (folder / "empty").mkdir()
    assert index.scan_file_states(folder / "empty") == set()


@pytest.mark.usefixtures("settled")
def test_names_that_are_no_text(folder: Path) -> None:
    os.rename(folder / "c.json", os.fsencode(folder) + b"/\xff.json")
    for _ in range(2):
        assert names(index.update_and_list_receipts(folder))[-1] == "\\udcff.json"
    os.unlink(os.fsencode(folder) + b"/\xff.json")
    assert names(index.update_and_list_receipts(folder)) == ["notes.json", "a.json", "b.json"]


def test_a_damaged_index_is_made_again(folder: Path) -> None:
    index.update_and_list_receipts(folder)
    for path in (folder / ".samerun").iterdir():
        path.unlink()
    (folder / index.INDEX_PATH).write_bytes(b"not a database" * 1000)
    assert len(index.update_and_list_receipts(folder)) == 4
    (folder / index.INDEX_PATH).write_bytes(b"")
    assert len(index.update_and_list_receipts(folder)) == 4


def test_an_index_that_is_damaged_inside_is_made_again(folder: Path) -> None:
    index.update_and_list_receipts(folder)
    raw = bytearray((folder / index.INDEX_PATH).read_bytes())
    raw[4096:] = b"\xff" * (len(raw) - 4096)  # the first page is whole
    for path in (folder / ".samerun").iterdir():
        path.unlink()
    (folder / index.INDEX_PATH).write_bytes(raw)
    assert len(index.update_and_list_receipts(folder)) == 4
    assert (folder / ".samerun" / "damaged.sqlite").exists()


UNWRITABLE = ["setpriv", "--bounding-set=-dac_override,-dac_read_search"] if not os.geteuid() else []
"""Root, too, as one whom the modes of files bind."""


@pytest.mark.skipif(UNWRITABLE != [] and shutil.which("setpriv") is None, reason="root may write everywhere")
@pytest.mark.parametrize("there", ["nothing", "an index", "a damaged index"])
def test_a_folder_that_only_can_be_read(folder: Path, there: str) -> None:
    if there != "nothing":
        index.update_and_list_receipts(folder)
    if there == "a damaged index":
        (folder / index.INDEX_PATH).write_bytes(b"not a database" * 1000)
    paths = [*(folder / ".samerun").glob("*"), *folder.glob(".samerun"), folder]
    for path in paths:
        path.chmod(0o555 if path.is_dir() else 0o444)
    before = sorted(path.name for path in (folder / ".samerun").glob("*"))
    try:
        words = [*UNWRITABLE, sys.executable, "-m", "samerun", "log", "--json", "-", "."]
        done = subprocess.run(words, cwd=folder, capture_output=True, text=True)
        assert done.returncode == 0 and len(json.loads(done.stdout)["receipts"]) == 4, done.stderr
        assert sorted(path.name for path in (folder / ".samerun").glob("*")) == before
        words[-4:] = ["run", "--receipt", "./", "--", "touch", str(folder.parent / "ran")]
        done = subprocess.run(words, cwd=folder, capture_output=True, text=True)
        assert done.returncode == 2 and "Permission denied" in done.stderr and "Traceback" not in done.stderr
        assert not (folder.parent / "ran").exists(), "hours of training would be lost"
    finally:
        for path in paths[::-1]:
            path.chmod(0o755 if path.is_dir() else 0o644)


def test_a_folder_in_the_place_of_the_index(folder: Path) -> None:
    (folder / index.INDEX_PATH).mkdir(parents=True)
    assert len(index.update_and_list_receipts(folder)) == 4


def test_receipts_of_another_version_and_empty_files_are_said(folder: Path) -> None:
    text = (folder / "a.json").read_text()
    (folder / "a.json").write_text(text.replace('"schema": 1', '"schema": 2'))
    (folder / "b.json").write_text("")
    found = {one.file: one.problem for one in index.update_and_list_receipts(folder)}
    assert "schema 2; this samerun reads schema 1" in found["a.json"] and "it is empty" in found["b.json"]


def test_a_folder_that_is_none(tmp_path: Path) -> None:
    with pytest.raises(SamerunError, match="Not a directory: "):
        index.update_and_list_receipts(tmp_path / "nothing")


@pytest.fixture
def many(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """40 receipts and two files that are none, read by two workers, three at a time."""
    text = receipt_json.encode_with_sorted_keys_and_indent({**made().receipt, "circumstances": {"began": "BEGAN"}})
    for number in range(40):
        (tmp_path / f"{number:02}.json").write_text(text.replace("BEGAN", f"2026-{number:02}"))
    (tmp_path / "cut.json").write_text(text[:500])
    (tmp_path / "deep.json").write_text("[" * 1000)
    monkeypatch.setattr(receipt_summary, "FILES_PER_TASK", 3)
    monkeypatch.setattr(receipt_summary, "MIN_FILES_FOR_WORKERS", 0)
    monkeypatch.setattr(receipt_summary, "_count_cores_in_affinity_mask", lambda: 2)
    return tmp_path


def new_children(before: list[Any]) -> list[Any]:
    return [child for child in multiprocessing.active_children() if child not in before]


def test_workers_read_what_one_process_reads(many: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = multiprocessing.active_children()  # other tests' loaders may have kept theirs
    calls: list[tuple[int, int]] = []
    by_workers = index.update_and_list_receipts(many, progress=lambda *call: calls.append(call))
    assert calls == [(3 * number, 42) for number in range(1, 15)]
    assert [one.file for one in by_workers if one.problem] == ["cut.json", "deep.json"] and len(by_workers) == 42
    shutil.rmtree(many / ".samerun")
    monkeypatch.setattr(receipt_summary, "MIN_FILES_FOR_WORKERS", 1000)
    assert index.update_and_list_receipts(many) == by_workers
    assert not new_children(before)


LISTING = (
    "import os, signal, multiprocessing\nfrom pathlib import Path\n"
    "from samerun.record.receipt import index, receipt_summary\n"
    "receipt_summary.FILES_PER_TASK, receipt_summary.MIN_FILES_FOR_WORKERS = 3, 0\n"
    "receipt_summary._count_cores_in_affinity_mask = lambda: 2\n"
    "{definition}\n"
    "if __name__ == '__main__':\n    print(len(index.update_and_list_receipts(Path('.'), progress=act)))\n"
)


def run_listing(folder: Path, *definition: str) -> subprocess.CompletedProcess[str]:
    """List the receipts in a process whose workers may be killed; `definition`: of its function `act`, by lines."""
    (folder / "program.py").write_text(LISTING.format(definition="\n".join(definition)))
    command = [sys.executable, "program.py"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=60, check=False)


def test_what_killed_workers_were_told_is_read_all_the_same(many: Path) -> None:
    done = run_listing(
        many,
        "def act(done, of):",
        "    for child in multiprocessing.active_children()[: 1 if done < 20 else 2]:",
        "        child.kill()",
    )
    assert (done.stdout, done.returncode) == ("42\n", 0), done.stderr


def test_a_first_time_that_was_broken_off_goes_on(many: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index, "SETTLED_NS", 0)  # files so new would be read again
    before = multiprocessing.active_children()

    def enough(done: int, _: int) -> None:
        if done >= 15:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        index.update_and_list_receipts(many, progress=enough)
    assert not new_children(before)
    calls: list[int] = []
    assert len(index.update_and_list_receipts(many, progress=lambda _, of: calls.append(of))) == 42
    assert set(calls) == {42 - 15}


def test_a_killed_listing_leaves_no_worker_behind(many: Path) -> None:
    done = run_listing(
        many,
        "def act(*_):",
        "    print(*(child.pid for child in multiprocessing.active_children()), flush=True)",
        "    os.kill(os.getpid(), signal.SIGKILL)",
    )
    pids = [int(word) for word in done.stdout.split()]
    assert len(pids) == 2 and done.returncode == -signal.SIGKILL, done.stderr
    end = time.monotonic() + 20
    while any(living(pid) for pid in pids):
        assert time.monotonic() < end
        time.sleep(0.05)
    assert len(index.update_and_list_receipts(many)) == 42


def living(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


READER = """
import sys
from pathlib import Path
from samerun.record.receipt import index, receipt_file
sys.path.insert(0, sys.argv[2])
from sample_receipts import made
folder = Path(sys.argv[1])
print("ready", flush=True)
for number in range(1000):
    receipt_file.write(folder / f"{sys.argv[3]}-{number}.json", made(circumstances={"began": str(number)}))
    index.update_and_list_receipts(folder)
"""


def test_writers_at_once_and_killed_ones_leave_a_whole_index(folder: Path) -> None:
    processes = []
    for name in ("x", "y", "z"):
        words = [sys.executable, "-c", READER, str(folder), str(SUPPORT), name]
        processes.append(subprocess.Popen(words, stdout=subprocess.PIPE, text=True))
    for process in processes:
        assert process.stdout is not None and process.stdout.readline() == "ready\n"
    time.sleep(1.5)
    for process in processes:
        assert process.poll() is None, "a writer failed"
        process.send_signal(signal.SIGKILL)
        process.communicate()
    found = index.update_and_list_receipts(folder)
    there = [path.name for path in folder.glob("[!.]*.json")]
    assert sorted(names(found)) == sorted(there) and len(there) > 10
    assert [one.file for one in found if one.problem] == ["notes.json"]


FIRST = """
import multiprocessing, sys
from pathlib import Path
from samerun.record.receipt import index
together = multiprocessing.get_context("fork")
barrier = together.Barrier(4)
def make_indices():
    for number in range(40):
        folder = Path(sys.argv[1], str(number))
        folder.mkdir(exist_ok=True)
        barrier.wait(60)
        index.update_and_list_receipts(folder)
processes = [together.Process(target=make_indices) for _ in range(4)]
for process in processes:
    process.start()
for process in processes:
    process.join()
sys.exit(max(process.exitcode for process in processes))
"""


def test_the_first_ones_to_look_may_come_at_once(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", FIRST, str(tmp_path)], capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr


def test_the_command(folder: Path) -> None:
    done = samerun(["log", "."], folder)
    lines = done.stdout.splitlines()
    assert done.returncode == 0 and len(lines) == 5 and lines[-1].endswith("c.json: other.py")
    assert samerun(["log", "--last", "--command", "train", "."], folder).stdout == "./b.json\n"
    put(folder, "e.json", "2026-01-05", sections=[section(other={(2, "loss"): "x"})])
    put(folder, "f.json", "2026-01-06")
    done = samerun(["log", "--diff", "--command", "train", "--json", "-", "."], folder)
    assert done.returncode == 1 and json.loads(done.stdout)["first_difference"]["step"] == 2
    done = samerun(["log", "--diff", "--command", "nothing", "."], folder)
    assert done.returncode == 2 and "0 receipts" in done.stderr
    assert samerun(["log", "nowhere"], folder).returncode == 2


@pytest.fixture
def memory(folder: Path) -> Any:
    fsspec = pytest.importorskip("fsspec")
    system = fsspec.filesystem("memory")
    for path in folder.glob("*.json"):
        system.pipe_file(f"/samerun-test/{path.name}", path.read_bytes())
    yield system
    system.rm("/samerun-test", recursive=True)


def test_remote_folders(folder: Path, memory: Any) -> None:
    calls: list[tuple[int, int]] = []
    found = remote.list_remote_receipts("memory://samerun-test", progress=lambda *call: calls.append(call))
    assert names(found) == ["notes.json", "a.json", "b.json", "c.json"] and calls == [(4, 4)]
    assert names(remote.list_remote_receipts("memory://samerun-test", "train", 1)) == ["b.json"]
    here = index.update_and_list_receipts(folder)
    assert [(one.file, one.digest, one.problem) for one in found] == [(e.file, e.digest, e.problem) for e in here]
    with remote.download_if_remote("memory://samerun-test/a.json") as path:
        assert receipt_file.read_and_verify_digest(path)["circumstances"]["began"] == "2026-01-01"
    done = samerun(["log", "--last", "--command", "train", f"file://{folder}"], folder)
    assert done.stdout == f"file://{folder}/b.json\n", done.stderr
    put(folder, "e.json", "2026-01-05", sections=[section(steps=3000, other={(2, "loss"): "x"})])
    put(folder, "f.json", "2026-01-06", sections=[section(steps=3000)])
    done = samerun(["log", "--diff", "--json", "-", f"file://{folder}"], folder)
    assert done.returncode == 1 and json.loads(done.stdout)["first_difference"]["step"] == 2, done.stderr


def test_one_remote_receipt_that_cannot_be_read(memory: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = type(memory).cat_file

    def fails(self: Any, path: str, *words: Any, **named: Any) -> Any:
        if path.endswith("a.json"):
            raise PermissionError("not yours")
        return whole(self, path, *words, **named)

    monkeypatch.setattr(type(memory), "cat_file", fails)
    found = {one.file: one.problem for one in remote.list_remote_receipts("memory://samerun-test")}
    assert "not yours" in found["a.json"] and not found["b.json"]


@pytest.mark.parametrize(
    "address, said",
    [
        ("nosuchthing://x", "nosuchthing"),
        ("memory://nowhere", "cannot be read"),
        ("s3://bucket/runs", "s3fs"),
        ("gs://bucket/runs", "gcsfs"),
    ],
)
def test_remote_folders_that_cannot_be_reached(address: str, said: str, tmp_path: Path) -> None:
    """Packages that are not there are named."""
    pytest.importorskip("fsspec")
    if said in ("s3fs", "gcsfs") and importlib.util.find_spec(said) is not None:
        pytest.skip(f"{said} is installed")
    done = samerun(["log", address], tmp_path)
    assert done.returncode == 2 and done.stderr.startswith(f"samerun: {address} ") and said in done.stderr
    assert "Traceback" not in done.stderr


def test_without_fsspec_it_says_what_to_install(tmp_path: Path) -> None:
    (tmp_path / "fsspec.py").write_text("raise ImportError('not here')")
    done = samerun(["log", "s3://bucket/runs"], tmp_path, PYTHONPATH=f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}")
    assert done.returncode == 2 and "pip install 'samerun[remote]'" in done.stderr

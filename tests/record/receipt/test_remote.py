"""Receipts at addresses: a folder through fsspec; and s3 against a server on this machine, where the packages are."""

from __future__ import annotations

import importlib.util
import json
import os
import posixpath
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from check_command import samerun
from sample_receipts import made, section

from samerun.base.errors import SamerunError
from samerun.record.receipt import receipt_file, remote
from samerun.record.receipt.diff import diff_runs, load_run

fsspec = pytest.importorskip("fsspec")

TRAINER = """
import sys, torch
model = torch.nn.Linear(4, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(int(sys.argv[1])):
    optimizer.zero_grad()
    model(torch.randn(8, 4)).pow(2).sum().backward()
    optimizer.step()
    if len(sys.argv) > 2 and step == 2:
        with torch.no_grad():
            model.weight.add_(1)
"""
BLOCK = """
import random, sys
import samerun, torch
def train(steps, to):
    samerun.seed_everything(0)
    with samerun.receipt(to):
        model = torch.nn.Linear(4, 2)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for step in range(steps):
            optimizer.zero_grad()
            model(torch.randn(8, 4)).pow(2).sum().backward()
            optimizer.step()
        samerun.mark("drawn", [random.random(), torch.rand(1)])
    return random.random(), torch.rand(1).item()
steps = int(open("steps").read())
# what the packages for the address draw moves no stream
assert train(steps, "here.json") == train(steps, sys.argv[1])
"""
NOTHING = """
import os, sys
if len(sys.argv) > 1:  # the folder is lost while the program runs
    os.rename(sys.argv[1], sys.argv[1] + "-was")
    open(sys.argv[1], "w").close()
sys.exit(3)
"""


def through_commands(address: str, folder: Path, **environment: str) -> None:
    """A user's day: run, log, diff, verify, all of them at the address."""

    def do(*words: str) -> Any:
        done = samerun([*words], folder, OMP_NUM_THREADS="1", **environment)
        assert "Traceback" not in done.stderr, done.stderr
        return done

    (folder / "train.py").write_text(TRAINER)
    for name, words in (("a.json", ["2100"]), ("b.json", ["4"]), ("", ["4", "other"])):
        # 2100 steps do not stand in the receipt itself
        trace = ["--trace", "ops"] if words[0] == "4" else []
        done = do("run", "--quiet", *trace, "--receipt", f"{address}/{name}", "train.py", *words)
        assert done.returncode == 0, done.stderr
    listed = json.loads(do("log", "--json", "-", address).stdout)["receipts"]
    assert [(one["steps"], one["problem"]) for one in listed] == [(2100, ""), (4, ""), (4, "")]
    newest = do("log", "--last", address).stdout.strip()
    assert newest == f"{address}/{listed[-1]['file']}" and newest.endswith(".json")

    done = do("diff", "--json", "-", f"{address}/b.json", newest)
    assert done.returncode == 1, done.stderr
    told = json.loads(done.stdout)
    assert told["first_difference"]["step"] == 4 and told["first_difference"]["operator"]["file"] == "train.py"
    assert (told["a"], told["b"]) == (f"{address}/b.json", newest)
    assert do("log", "--diff", address).returncode == 1
    done = do("diff", "--json", "-", f"{address}/a.json", f"{address}/b.json")
    assert done.returncode == 1 and json.loads(done.stdout)["steps"] == 4, done.stderr

    done = do("verify", "--yes", "--json", "-", f"{address}/a.json")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert (told["verdict"], told["receipt"], told["steps"]) == ("same", f"{address}/a.json", 2100)
    done = do("diff", f"{address}/a.json", f"{address}/none.json")
    assert done.returncode == 2 and f"{address}/none.json cannot be read: nothing is there." in done.stderr


def through_a_block(address: str, folder: Path, **environment: str) -> None:
    """`samerun.receipt` in a program: the same as into a file, and verified like one."""

    def do(*words: str) -> Any:
        return subprocess.run([sys.executable, *words], cwd=folder, capture_output=True, text=True,
                              env={**os.environ, "OMP_NUM_THREADS": "1", **environment})  # fmt: skip

    (folder / "block.py").write_text(BLOCK)
    for steps in (2100, 3):  # the second takes the place of the first, and of its steps beside it
        (folder / "steps").write_text(str(steps))
        done = do("block.py", f"{address}/block.json")
        assert done.returncode == 0, done.stderr
        with remote.download_if_remote(f"{address}/block.json") as path:
            told = diff_runs(load_run(folder / "here.json"), load_run(path))
        assert (told["verdict"], told["steps"]) == ("same", steps)
    system, there = remote.open_file_system(address)
    names = [posixpath.basename(path) for path in system.ls(there, detail=False)]
    assert [name for name in names if "block" in name] == ["block.json"]
    done = do("-m", "samerun", "verify", "--yes", "--json", "-", f"{address}/block.json")
    assert done.returncode == 0 and json.loads(done.stdout)["verdict"] == "same", done.stderr


def to_a_bucket_that_is_not_there(address: str, folder: Path, **environment: str) -> None:
    done = samerun(["run", "--receipt", f"{address}/a.json", "train.py", "1"], folder, **environment)
    assert done.returncode == 2 and done.stderr.startswith(
        f"samerun: {address}/a.json cannot be written: there is no other."
    ), done.stderr


@pytest.mark.exhaustive  # s3 and gs go the same way in `make test-adapters`
def test_a_folder_by_its_address(tmp_path: Path) -> None:
    (tmp_path / "far").mkdir()
    through_commands(f"file://{tmp_path}/far/runs", tmp_path)
    through_a_block(f"file://{tmp_path}/far/runs", tmp_path)


@pytest.fixture
def s3(tmp_path: Path) -> Iterator[dict[str, str]]:
    """The environment in which a server on this machine is s3."""
    pytest.importorskip("s3fs")
    server = pytest.importorskip("moto.server").ThreadedMotoServer(ip_address="127.0.0.1", port=0)
    server.start()
    host, port = server.get_host_and_port()
    yield {
        "AWS_ENDPOINT_URL": f"http://{host}:{port}", "AWS_ACCESS_KEY_ID": "x", "AWS_SECRET_ACCESS_KEY": "x",
        "AWS_DEFAULT_REGION": "us-east-1",
    }  # fmt: skip
    server.stop()


@pytest.mark.filterwarnings("ignore")  # the libraries' own
def test_s3(s3: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in s3.items():
        monkeypatch.setenv(name, value)
    fsspec.filesystem("s3").mkdir("bucket")
    through_commands("s3://bucket/runs", tmp_path, **s3)
    through_a_block("s3://bucket/runs", tmp_path, **s3)
    to_a_bucket_that_is_not_there("s3://other", tmp_path, **s3)
    assert not fsspec.filesystem("s3").exists("other"), "a bucket whose name was mistyped is not made"


@pytest.fixture
def gs(tmp_path: Path) -> Iterator[dict[str, str]]:
    """The environment in which a server on this machine is gs."""
    if not all(importlib.util.find_spec(name) for name in ("gcsfs", "gcp_storage_emulator")):
        pytest.skip("gcsfs and gcp-storage-emulator are not installed")
    # gcsfs is loaded later: it reads the last of the variables below when it is
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    words = [sys.executable, "-m", "gcp_storage_emulator", "start", "--host=127.0.0.1", f"--port={port}", "--in-memory"]
    # a process: threads of its own would wait for connections that are kept open here
    server = subprocess.Popen(words, cwd=tmp_path, stderr=subprocess.DEVNULL)
    try:
        end = time.monotonic() + 60
        while not accepts(port):
            assert server.poll() is None and time.monotonic() < end
            time.sleep(0.05)
        yield {
            "STORAGE_EMULATOR_HOST": f"http://127.0.0.1:{port}", "FSSPEC_GS_TOKEN": "anon",
            "GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT": "false",  # it would ask about buckets by gRPC, which is not there
        }  # fmt: skip
    finally:
        server.kill()
        server.wait()


def accepts(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port)).close()
    except OSError:
        return False
    return True


@pytest.mark.filterwarnings("ignore")  # the libraries' own
def test_gs(gs: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in gs.items():
        monkeypatch.setenv(name, value)
    system = fsspec.filesystem("gs", token="anon", endpoint_url=gs["STORAGE_EMULATOR_HOST"])
    system.mkdir("bucket")
    through_commands("gs://bucket/runs", tmp_path, **gs)  # a block in a program goes the same way as with s3
    to_a_bucket_that_is_not_there("gs://other", tmp_path, **gs)


def test_what_cannot_be_sent_is_kept(tmp_path: Path) -> None:
    far = tmp_path / "far"
    far.mkdir()
    (tmp_path / "nothing.py").write_text(NOTHING)
    done = samerun(["run", "--quiet", "--receipt", f"file://{far}/a.json", "nothing.py", str(far)], tmp_path,
                   TMPDIR=str(tmp_path))  # fmt: skip
    assert done.returncode == 2 and f"file://{far}/a.json cannot be written" in done.stderr
    kept = Path(done.stderr.strip().rpartition("upload it yourself: ")[2])
    assert receipt_file.read_and_verify_digest(kept)["ended"]["exit_code"] == 3


def test_what_was_sent_leaves_nothing_here(tmp_path: Path) -> None:
    (tmp_path / "nothing.py").write_text(NOTHING)
    done = samerun(["run", "--quiet", "--receipt", f"file://{tmp_path}/far/a.json", "nothing.py"], tmp_path,
                   TMPDIR=str(tmp_path))  # fmt: skip
    assert (
        done.returncode == 3
        and receipt_file.read_and_verify_digest(tmp_path / "far" / "a.json")["ended"]["exit_code"] == 3
    )
    assert sorted(path.name for path in tmp_path.iterdir()) == ["far", "nothing.py"]


def test_steps_and_errors_of_what_was_fetched(tmp_path: Path) -> None:
    receipt_file.write(tmp_path / "long.json", made(section(steps=3000)))
    (tmp_path / "wrong.json").write_text((tmp_path / "long.json").read_text().replace("train.py", "other.py"))
    with remote.download_if_remote(f"file://{tmp_path}/long.json") as path:
        assert [each.suffix for each in sorted(path.parent.glob("long*"))] == [".json", ".steps"]
    assert not path.parent.exists()
    address = f"file://{tmp_path}/wrong.json"
    with pytest.raises(SamerunError, match=f"^{address} was changed after"), remote.download_if_remote(address):
        pass
    next(tmp_path.glob("*.steps")).unlink()
    done = samerun(["diff", f"file://{tmp_path}/long.json", "long.json"], tmp_path)
    assert done.returncode == 2 and str(tmp_path) in done.stderr and "Traceback" not in done.stderr

"""The runs of a check as tasks of a real Ray cluster on this machine. `make test-packages` has it."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from check_command import check

pytest.importorskip("ray")
pytestmark = pytest.mark.exhaustive

PROGRAM = """
import os, torch
torch.manual_seed(int.from_bytes(os.urandom(4), "little"))
print(torch.rand(3).sum())
"""


@pytest.fixture
def address() -> Iterator[str]:
    """Of the client's port of a cluster that lives as long as the test; its paths must be short."""
    ports = []
    for _ in range(2):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            ports.append(free.getsockname()[1])
    with tempfile.TemporaryDirectory(prefix="ray") as folder:
        ray = [sys.executable, "-m", "ray.scripts.scripts"]
        environment = {**os.environ, "RAY_TMPDIR": folder}
        words = [
            "start", "--head", f"--port={ports[0]}", f"--ray-client-server-port={ports[1]}", "--num-cpus=2",
            "--include-dashboard=false", "--disable-usage-stats", "--min-worker-port=0", "--max-worker-port=0",
        ]  # fmt: skip
        subprocess.run([*ray, *words], env=environment, check=True, capture_output=True, timeout=120)
        try:
            yield f"ray://127.0.0.1:{ports[1]}"
        finally:
            subprocess.run([*ray, "stop", "--force"], env=environment, check=False, capture_output=True, timeout=120)


def test_a_cause_is_found_by_tasks(address: str, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(PROGRAM, encoding="utf-8")
    on = f"{address}?num_cpus=1"
    code, report = check(["--on", on, "--at-once", "2", "--vary", "rerun", "train.py"], tmp_path)
    assert code == 1 and (report["cause"]["kind"], report["cause"]["line"]) == ("os-entropy", 3), report
    assert report["cause"]["certain"] and any(f"--on {on}" in note for note in report["notes"])

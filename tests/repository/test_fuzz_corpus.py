"""What the fuzzers of `tests/fuzz` found once, in its smallest form, and a fixed sample of what they make."""

from __future__ import annotations

import json
import random
import shutil
from pathlib import Path
from typing import Any

import fuzz_checkpoints
import fuzz_commands
import fuzz_receipts
import fuzz_traces
import pytest
from repository_paths import TESTS

from samerun.base.errors import CheckpointError
from samerun.control.rng.isolation import isolate_rng
from samerun.data import checkpoint_file

CORPUS = TESTS / "fuzz" / "corpus"


def cases(kind: str) -> list[Any]:
    found = sorted((CORPUS / kind).iterdir())
    assert found
    return [pytest.param(path, id=path.stem) for path in found]


@pytest.mark.parametrize("path", cases("receipts"))
def test_receipts(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    fuzz_receipts.prepare(tmp_path)
    fuzz_receipts.read_all(path.read_bytes(), tmp_path)


@pytest.mark.parametrize("path", cases("traces"))
def test_traces(path: Path, tmp_path: Path) -> None:
    fuzz_traces.prepare(tmp_path)
    fuzz_traces.read_all(path.read_bytes(), tmp_path)


@pytest.mark.parametrize("path", cases("checkpoints"))
def test_checkpoints(path: Path, tmp_path: Path) -> None:
    """Of the training's parts those that the checkpoint holds are loaded, so that the others need not be in it."""
    shutil.copy(path, tmp_path / "c.pt")
    with isolate_rng():
        parts = fuzz_checkpoints.make_parts()
        try:
            content = checkpoint_file.map_untrusted_archive_into_memory(path).content
            parts = {name: part for name, part in parts.items() if name in content["parts"]}
        except (checkpoint_file.UnreadableCheckpoint, CheckpointError, KeyError, TypeError):
            pass
        assert not fuzz_checkpoints.load(tmp_path / "c.pt", parts)


def test_command_lines() -> None:
    with fuzz_commands.folder_to_run_in():
        for words, code in json.loads((CORPUS / "commands.json").read_text()):
            assert fuzz_commands.run_command(words) == code, words


def test_a_sample_of_each(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # there the fuzzers leave what failed
    taken, refused = fuzz_traces.run(40, 1)
    assert taken and refused
    codes = fuzz_commands.run(60, 1)
    assert codes.get(0) and codes.get(2) and codes.get(None)
    folder = tmp_path / "receipts"
    folder.mkdir()
    fuzz_receipts.prepare(folder)  # changes to the folder
    chance = random.Random(1)
    for _ in range(40):
        fuzz_receipts.read_all(fuzz_receipts.changed(chance.choice(fuzz_receipts.SEEDS), chance), folder)


def test_the_fuzzers_see_what_fails(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def fail(*args: Any, **options: Any) -> None:
        raise KeyError("x")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("samerun.record.receipt.diff.load_run", fail)
    with fuzz_commands.folder_to_run_in(), pytest.raises(AssertionError, match="bug in samerun"):
        fuzz_commands.run_command(["diff", "a.json", "b.json"])
    monkeypatch.setattr(fuzz_traces, "diff_runs", fail)
    with pytest.raises(KeyError):
        fuzz_traces.run(1, 0)
    monkeypatch.setattr(fuzz_checkpoints.samerun.checkpoint, "load", fail)
    with isolate_rng(), pytest.raises(KeyError):
        fuzz_checkpoints.load(tmp_path / "c.pt", {})

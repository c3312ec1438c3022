"""No text that somebody else wrote commands a terminal: whatever field it stands in, whatever command shows it."""

from __future__ import annotations

import copy
import json
import os
import re
import subprocess
import sys
import unicodedata
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hostile_traces import operators, write
from repository_paths import ROOT
from sample_receipts import FACTS, made, section

from samerun.base.errors import CheckpointError
from samerun.base.text import escape_and_truncate_for_terminal, escape_as_one_line
from samerun.record.receipt import receipt_file, receipt_json
from samerun.record.receipt.assemble import with_reproducible_digest
from samerun.record.receipt.receipt_json import compile_schema

SAMERUN = str(Path(sys.executable).with_name("samerun"))
BAD = "\x1b[2J\x1b]0;x\x07\u202e\u2066\x9b31m\r\x00\u200f"
LARGE = "x" * (1 << 20)


def assert_fit(text: str) -> None:
    odd = [c for c in text if c not in "\n\t" and (unicodedata.category(c) in ("Cc", "Cf", "Cs"))]
    assert not odd, (odd[:5], text[:300])
    assert len(text) < 1 << 16


def run(*words: str | Path, folder: Path) -> str:
    done = subprocess.run([SAMERUN, *map(str, words)], cwd=folder, capture_output=True, timeout=120)
    said = (done.stdout + done.stderr).decode("utf-8", "surrogateescape")
    assert "Traceback" not in said and "bug in samerun" not in said, said[-2000:]
    assert_fit(said)
    return said


def texts_of(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The paths of all texts in a value."""
    if isinstance(value, str):
        return [path]
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [one for key, inner in items for one in texts_of(inner, (*path, key))]


def with_text(receipt: dict[str, Any], path: tuple[Any, ...], text: str) -> dict[str, Any]:
    changed = copy.deepcopy(receipt)
    inner: Any = changed
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = text
    return changed


@pytest.mark.slow
def test_every_field_of_a_receipt(tmp_path: Path) -> None:
    """All fields that may hold any text at once in one receipt; and each by itself through what reads it."""
    marks = [{"name": "m", "step": 2, "digest": "0" * 32}]
    files = [{"path": "p", "bytes": 1, "digest": "0" * 32}]
    good = made(section(marks=marks, files=files, outputs=files, saved=[{"name": "s", "digest": "0" * 32}]),
                section(f"rank{BAD}"), facts={"variables": {**FACTS["variables"], BAD: BAD}}).receipt  # fmt: skip
    check = compile_schema(receipt_file.load_schema())
    for text in (BAD, "\u202e" * 400):
        everything = good
        for path in texts_of(good):
            one = with_text(good, path, text)
            if check(one) or path[0] in ("digest", "kind"):
                continue
            everything = with_text(everything, path, text)
        for name, receipt in (("a.json", good), ("b.json", everything)):
            (tmp_path / name).write_text(
                receipt_json.encode_with_sorted_keys_and_indent(with_reproducible_digest(receipt)), encoding="ascii"
            )
        assert "DIFFERENT" in run("diff", "a.json", "b.json", folder=tmp_path)
        run("verify", "b.json", folder=tmp_path)
        run("verify", "--command", "b.json", folder=tmp_path)
        run("log", ".", folder=tmp_path)
    # what keeps not even to the schema is refused in words that are fit
    for path in texts_of(good)[::7]:
        (tmp_path / "b.json").write_text(json.dumps(with_text(good, path, LARGE + BAD)))
        with pytest.raises(Exception) as caught:
            receipt_file.read_and_verify_digest(tmp_path / "b.json")
        assert_fit(str(caught.value))


@pytest.mark.skipif(os.name != "posix", reason="names of files")
def test_every_text_of_a_trace(tmp_path: Path) -> None:
    texts = [BAD.replace("\0", "") + "train.py", LARGE + BAD, BAD, b"\xff\xfe\x1b[2J"]
    rows = [(1, 1, 2), (2, 2, 4)]
    events = operators(20)
    folder = f"b{BAD[:4]}"
    write(tmp_path / "a" / "main.trace", events, texts, rows, BAD.encode(), BAD.encode())
    events["out0"][7] += 1
    events["location"] = np.arange(20) % 2 + 1
    events["name"] = np.arange(20) % 3 + 2
    write(tmp_path / folder / "main.trace", events, texts, rows, BAD.encode(), b"\x1b[2J")
    assert "DIFFERENT" in run("diff", "a", folder, folder=tmp_path)
    (tmp_path / folder / "main.trace").write_bytes(b"no trace" * 100)
    assert "not a samerun trace" in run("diff", "a", folder, folder=tmp_path)


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="names of files")
def test_names_options_and_sources(tmp_path: Path) -> None:
    name = "tr\x1b[2J\u202ein.py"
    (tmp_path / name).write_text(f"x = (  # \x1b[2J {LARGE}\n'\u202e' = 3\n")
    for words in (
        ["check", name], ["run", name], ["check", "no\x1b[2J.py"], ["diff", "no\x1b[2J", name], ["log", "no\x1b[2J"],
        ["run", "--no\x1b[2Jsuch", name], ["check", "--repeat", "\x1b[2J", name], ["no\x1b[2Jsuch"], ["verify", name],
        ["check", "--", "no\x1b[2J"], ["check", "-m", "no\x1b[2J"], ["run", "--receipt", "no\x1b[2J/x/", name],
    ):  # fmt: skip
        assert run(*words, folder=tmp_path)


def test_errors_of_the_library_are_fit_too() -> None:
    error = CheckpointError(f"{BAD} is damaged", BAD)
    assert_fit(str(error))
    assert escape_and_truncate_for_terminal("a\n\tb é 漢") == "a\n\tb é 漢"
    assert (
        len(escape_and_truncate_for_terminal(LARGE)) < 5000
        and len(escape_and_truncate_for_terminal("\n" * (1 << 20))) < 5000
        and len(escape_as_one_line(LARGE)) < 400
    )


def test_nothing_is_printed_past_it() -> None:
    """Commands print through `say`, reports through our console."""
    source = ROOT / "src" / "samerun"
    found = [
        f"{path.relative_to(source)}: {line.strip()}"
        for room in ("check", "record", "control", "report", "base")
        for path in (source / room).rglob("*.py")
        for line in path.read_text(encoding="utf-8").splitlines()
        if re.search(r"click\.(echo|secho)\(|(?<![\w.])print\(|rich\.print", line)
        and not line.strip().startswith(("#", '"'))
    ]
    assert all("base/text.py" in one or "log_command.py" in one for one in found), found

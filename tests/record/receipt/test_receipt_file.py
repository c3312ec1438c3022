"""The receipt as a file: canonical, whole at every moment, and refused when it is not what it says."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from repository_paths import ROOT
from sample_receipts import made, section

from samerun.base.errors import SamerunError
from samerun.base.files import write_file_atomically
from samerun.base.text import escape_as_one_line
from samerun.record.receipt import receipt_file, receipt_json, recorded_command, step_table
from samerun.record.receipt.assemble import with_reproducible_digest


def written(path: Path, **parts: Any) -> dict[str, Any]:
    one = made(**parts)
    receipt_file.write(path, one)
    return one.receipt


def test_what_is_written_is_read(tmp_path: Path) -> None:
    receipt = written(tmp_path / "run.json")
    assert receipt_file.read_and_verify_digest(tmp_path / "run.json") == receipt
    assert os.listdir(tmp_path) == ["run.json"]


def test_the_schema_in_the_docs_is_the_one_that_is_used() -> None:
    shown_one = json.loads((ROOT / "docs/reference/receipt.schema.json").read_text())
    assert shown_one == receipt_file.load_schema()
    import jsonschema

    jsonschema.Draft202012Validator.check_schema(shown_one)


def test_many_steps_lie_beside_the_receipt_and_go_with_it(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    long = made(section(steps=step_table.MAX_INLINE_ROWS + 1))
    receipt_file.write(path, long)
    receipt = receipt_file.read_and_verify_digest(path)
    assert receipt["steps_in"] == "file"
    beside = step_table.steps_file_path(path, receipt["digest"])
    assert sorted(os.listdir(tmp_path)) == sorted(["run.json", beside.name])
    tables = step_table.read_step_tables(path, receipt)
    assert bytes(tables["main", "values"].rows) == bytes(long.tables[1].rows)
    raw = bytearray(beside.read_bytes())
    raw[len(raw) // 2] ^= 1
    beside.write_bytes(raw)
    with pytest.raises(SamerunError, match="not those"):
        tables = step_table.read_step_tables(path, receipt)
        step_table.require_rows_match_trees(tables)
    beside.write_bytes(raw[:-1])
    with pytest.raises(SamerunError, match="bytes"):
        step_table.read_step_tables(path, receipt)
    written(path)
    assert os.listdir(tmp_path) == ["run.json"], "what lay beside the earlier receipt goes with it"


def test_a_file_of_the_users_is_never_removed(tmp_path: Path) -> None:
    for name in ("run.json.steps", "run.json.0123.steps", "run.json.0123456789abcdef.txt", "other.json"):
        (tmp_path / name).write_text("mine")
    written(tmp_path / "run.json")
    assert len(os.listdir(tmp_path)) == 5


@pytest.mark.parametrize("at", ["fsync", "replace"])
def test_a_failure_at_any_moment_leaves_the_earlier_receipt(
    at: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "run.json"
    before = written(path)

    def fails(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, at, fails)
    with pytest.raises(SamerunError, match="No space left"):
        receipt_file.write(path, made(section(steps=9)))
    monkeypatch.undo()
    assert receipt_file.read_and_verify_digest(path) == before
    assert os.listdir(tmp_path) == ["run.json"]


def test_a_device_or_a_folder_is_not_replaced(tmp_path: Path) -> None:
    for path in (Path("/dev/null"), tmp_path):
        with pytest.raises(SamerunError, match="regular file"):
            write_file_atomically(path, b"x")


def test_a_link_is_followed(tmp_path: Path) -> None:
    (tmp_path / "link.json").symlink_to("real.json")
    write_file_atomically(tmp_path / "link.json", b"x")
    assert (tmp_path / "link.json").is_symlink() and (tmp_path / "real.json").read_bytes() == b"x"


def test_a_change_by_hand_is_noticed_but_not_in_the_circumstances(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    receipt = written(path)
    path.write_text(receipt_json.encode_with_sorted_keys_and_indent({**receipt, "circumstances": {"began": "never"}}))
    receipt_file.read_and_verify_digest(path)
    path.write_text(receipt_json.encode_with_sorted_keys_and_indent({**receipt, "seed": 8}))
    with pytest.raises(SamerunError, match="changed"):
        receipt_file.read_and_verify_digest(path)


def refused(tmp_path: Path, raw: bytes) -> str:
    path = tmp_path / "hostile.json"
    path.write_bytes(raw)
    with pytest.raises(SamerunError) as caught:
        step_table.read_step_tables(path, receipt_file.read_and_verify_digest(path))
    return str(caught.value)


@pytest.mark.parametrize(
    "raw, said",
    [
        (b"", "not a samerun receipt"),
        (b"[" * 100_000, "deeper than"),
        (b'{"a":' * 100_000, "deeper than"),
        (b'{"kind": 1, "kind": 2}', "twice"),
        (b'{"a": NaN}', "NaN"),
        (b'{"a": 1e999}', "too large"),
        (b'{"a": ' + b"9" * 5000 + b"}", "digits"),
        (b"\xff\xfe", "not a samerun receipt"),
        (b"null", "not a samerun receipt"),
        (b'{"kind": "samerun receipt", "schema": 2}', "schema 2"),
        (b'{"kind": "samerun receipt", "schema": 1}', "required"),
    ],
    ids=lambda value: str(value)[:20],
)
def test_what_is_no_receipt_is_refused(raw: bytes, said: str, tmp_path: Path) -> None:
    assert said in refused(tmp_path, raw)


def test_a_pipe_is_not_waited_for_and_a_giant_is_not_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(SamerunError, match="regular file"):
        receipt_file.read_and_verify_digest(tmp_path / "pipe")
    with open(tmp_path / "giant", "wb") as file:
        file.truncate(receipt_json.MAX_BYTES + 1)
    with pytest.raises(SamerunError, match="at most"):
        receipt_file.read_and_verify_digest(tmp_path / "giant")
    with pytest.raises(SamerunError, match="cannot be read"):
        receipt_file.read_and_verify_digest(tmp_path / "nothing")
    with pytest.raises(SamerunError, match="cannot be read"):
        receipt_file.read_and_verify_digest(Path("nul\0"))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


def paths_in(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every place in a value."""
    found = [path]
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        found += paths_in(inner, (*path, key))
    return found


RECEIPT = made(
    section(marks=[{"name": "m", "step": 2, "digest": "0" * 32}]),
    section("rank0"),
    section("rank1", other={(2, "params"): "x"}),
).receipt
PLACES = paths_in(RECEIPT)


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(place=st.sampled_from(PLACES), value=JSON, drop=st.booleans(), seal=st.booleans())
def test_a_receipt_with_anything_in_it_is_read_or_refused(
    place: tuple[Any, ...], value: Any, drop: bool, seal: bool, tmp_path: Path
) -> None:
    """Never another exception; `seal`: the digest is made to fit, as whoever writes one can."""
    from samerun.record.receipt.diff import describe_first_difference, diff_runs, load_run

    receipt = json.loads(json.dumps(RECEIPT))
    if place:
        parent = receipt
        for key in place[:-1]:
            parent = parent[key]
        if drop:
            parent.pop(place[-1])
        else:
            parent[place[-1]] = value
    else:
        receipt = value
    if seal and isinstance(receipt, dict):
        receipt = with_reproducible_digest(receipt)
    good, path = tmp_path / "good.json", tmp_path / "hostile.json"
    if not good.exists():
        good.write_text(receipt_json.encode_with_sorted_keys_and_indent(RECEIPT))
    path.write_text(json.dumps(receipt))
    try:
        side = load_run(path)
        describe_first_difference(diff_runs(load_run(good), side))
    except SamerunError as error:
        assert str(error)


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(raw=st.binary(max_size=200) | JSON.map(lambda value: json.dumps(value).encode()))
def test_any_bytes_are_refused(raw: bytes, tmp_path: Path) -> None:
    refused(tmp_path, raw)


def test_what_the_fuzzer_makes_is_read_or_refused() -> None:
    """Its seeded part, in a few rounds. With atheris it goes on for longer, guided by coverage."""
    words = [sys.executable, str(ROOT / "tests/fuzz/fuzz_receipts.py"), "--plain", "100"]
    done = subprocess.run(words, capture_output=True, text=True)
    assert done.returncode == 0 and done.stdout == "100 inputs were read or refused\n", done.stderr


@given(value=JSON)
@settings(deadline=None)
def test_canonical_text_gives_the_value_back_and_has_one_form(value: Any) -> None:
    text = receipt_json.encode_with_sorted_keys_and_indent(value)
    if receipt_json._nesting_depth_up_to_limit(text.encode()) <= receipt_json.MAX_DEPTH and not _long_number(value):
        assert receipt_json.parse_untrusted_json(text.encode(), "x") == value
    assert text.isascii()
    if isinstance(value, dict):
        assert receipt_json.encode_with_sorted_keys_and_indent(dict(reversed(value.items()))) == text


def _long_number(value: Any) -> bool:
    return any(len(str(part)) > 39 for part in json.dumps(value).replace(",", " ").replace("]", " ").split())


@given(st.text())
def test_text_from_strangers_cannot_command_a_terminal(text: str) -> None:
    assert escape_as_one_line(text).isprintable() and len(escape_as_one_line(text)) <= 300 * 10 + 3


def test_what_is_asked_about_is_the_whole_command() -> None:
    words = ["sh", "-c", "x" * 300 + "; rm -rf ~", *["-"] * 60, "last word"]
    asked = recorded_command.format_whole_command_line({"form": "command", "words": words})
    assert shlex.split(asked) == words
    assert "more words" in recorded_command.format_command_line_truncating_words({"form": "command", "words": words})
    assert "\x1b" not in recorded_command.format_whole_command_line({"form": "script", "words": ["\x1b[8m\u202e"]})
    with pytest.raises(SamerunError, match="too long to be shown"):
        recorded_command.format_whole_command_line({"form": "command", "words": ["true", *["a"] * 5000]})

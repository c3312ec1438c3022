"""Our check of a receipt's form says what a general validator of JSON Schema says, and stops at the first error."""

from __future__ import annotations

import json
import random
import time
from pathlib import Path

import jsonschema
import pytest
from fuzz_receipts import SEEDS, changed

from samerun.base.errors import SamerunError
from samerun.record.receipt import receipt_file, receipt_json
from samerun.record.receipt.receipt_json import compile_schema

VALIDATOR = jsonschema.Draft202012Validator(receipt_file.load_schema())
CHECK = compile_schema(receipt_file.load_schema())


def is_right(value: object) -> bool:
    return not CHECK(value)


@pytest.mark.parametrize("count", [1500, pytest.param(20_000, marks=pytest.mark.exhaustive)])
def test_it_agrees_with_a_general_validator(count: int) -> None:
    chance = random.Random(count)
    agreed = {True: 0, False: 0}
    for _ in range(count):
        try:
            value = json.loads(changed(chance.choice(SEEDS), chance))
        except (ValueError, RecursionError):
            continue
        ours = is_right(value)
        if ours != VALIDATOR.is_valid(value):
            # Stricter in two points: 1.0 is no whole number, and a line break behind a digest is no part of it.
            assert not ours and ("a fraction" in CHECK(value) or "not of the form" in CHECK(value)), CHECK(value)
        agreed[ours] += 1
    assert all(agreed.values())


def test_it_names_the_place() -> None:
    value = json.loads(SEEDS[0])
    assert is_right(value)
    value["processes"]["main"]["steps"]["values"]["count"] = "5"
    assert CHECK(value) == "/processes/main/steps/values/count: string instead of integer"
    value = json.loads(SEEDS[0])
    value["digest"] += "\n"
    assert "not of the form" in CHECK(value)
    with pytest.raises(ValueError, match="not known here"):
        compile_schema({"type": "array", "contains": {}})


@pytest.mark.parametrize(
    "raw",
    [
        b'{"kind": "samerun receipt", "x": [' + b"{}," * 1_300_000 + b"{}]}",
        b'{"x": [' + b'"[",' * 5_100_000 + b'""]}',
        b'{"x": 1.' + b"1" * (8 << 20) + b"}",
        b"[" * (4 << 20),
        b'{"x": "' + b"\\" * (4 << 20) + b'"}',
        json.dumps({**json.loads(SEEDS[0]), "processes": {str(i): {"x": 1} for i in range(9000)}}).encode(),
    ],
    ids=["objects", "quotes", "digits", "depth", "backslashes", "errors"],
)
def test_what_is_large_and_wrong_is_refused_at_once(raw: bytes, tmp_path: Path) -> None:
    (tmp_path / "large.json").write_bytes(raw)
    begin = time.process_time()
    with pytest.raises(SamerunError):
        receipt_file.read_and_verify_digest(tmp_path / "large.json")
    assert time.process_time() - begin < 3


def test_the_digest_of_what_is_written_in_parts() -> None:
    from hashlib import blake2b

    value = {"b": list(range(20_000)), "a": {"é": [None, True, 1.5, "x"]}}
    expected = blake2b(receipt_json.encode_with_sorted_keys_and_indent(value).encode(), digest_size=32).hexdigest()
    assert receipt_json.blake2b_hexdigest_canonical_json(value) == expected

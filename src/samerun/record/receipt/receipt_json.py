"""The JSON of receipts: canonical text (one for one value), a reader for JSON of a stranger, validation by a schema.

Only the keywords that receipt.schema.json uses are supported: a general validator takes minutes for a receipt of
64 MiB, and longer if it has many errors. `tests/record/receipt/test_receipt_schema.py` compares the two.
"""

from __future__ import annotations

import json
import os
import re
import stat
from collections.abc import Callable
from hashlib import blake2b
from pathlib import Path
from typing import Any

from samerun.base.errors import SamerunError

SCHEMA = 1
"""The version of the receipts that this samerun writes and reads."""
MAX_BYTES = 64 << 20
MAX_DEPTH = 32
MAX_NUMBER_LENGTH = 40
MAX_VALUES = 5_000_000
"""Each value takes far more memory than its text: 64 MiB of `[{},{},...]` would take gigabytes. An object counts as
four values. A receipt of 64 MiB that samerun wrote has 4.2 million."""


def encode_with_sorted_keys_and_indent(value: Any) -> str:
    """Sorted keys, one space of indentation, ASCII only, shortest floats; ends with a newline.

    Raises ValueError for NaN and infinity, which JSON does not have.
    """
    return _ENCODER.encode(value) + "\n"


_ENCODER = json.JSONEncoder(sort_keys=True, indent=1, ensure_ascii=True, allow_nan=False)


def blake2b_hexdigest_canonical_json(value: Any) -> str:
    """64 hex digits: BLAKE2b-256 of the canonical text, which is encoded and hashed in pieces."""
    hasher, part, size = blake2b(digest_size=32), list[str](), 0
    for piece in _ENCODER.iterencode(value):
        part.append(piece)
        size += 1
        if size == 4096:
            hasher.update("".join(part).encode("ascii"))
            part, size = [], 0
    hasher.update(("".join(part) + "\n").encode("ascii"))
    return hasher.hexdigest()


def read_untrusted_json(path: Path) -> Any:
    """The value in a file. Raises SamerunError for anything but plain JSON of bounded size and depth."""
    try:
        with open(path, "rb", opener=_open_nonblocking) as file:
            info = os.fstat(file.fileno())
            if not stat.S_ISREG(info.st_mode):
                raise SamerunError(f"{path} is no regular file.", hint="Name a receipt: a file of JSON.")
            if info.st_size > MAX_BYTES:
                raise SamerunError(
                    f"{path} has {info.st_size} bytes; a receipt has at most {MAX_BYTES}.", hint="Is it a receipt?"
                )
            raw = file.read(info.st_size)  # not MAX_BYTES: read() would allocate that much
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise SamerunError(f"{path} cannot be read: {why}.", hint="Is the path right?") from error
    return parse_untrusted_json(raw, str(path))


def _open_nonblocking(path: str, flags: int) -> int:
    """Open without blocking on a named pipe."""
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))


def parse_untrusted_json(raw: bytes, name: str) -> Any:
    """The value of a text. Raises SamerunError for bad JSON, duplicate keys, NaN, deep nesting, long numbers."""

    def refuse(why: str) -> SamerunError:
        hint = "A receipt is a file that samerun wrote, unchanged."
        return SamerunError(f"{name} is not a samerun receipt: {why}.", hint=hint)

    if len(raw) > MAX_BYTES:
        raise refuse(f"it has more than {MAX_BYTES} bytes")
    if not raw.strip():
        raise refuse("it is empty")
    # An upper bound: strings may contain these characters.
    values = raw.count(b",") + raw.count(b"[") + 4 * raw.count(b"{")
    if max(values, raw.count(b'"') // 2) > MAX_VALUES:
        raise refuse(f"it has more than {MAX_VALUES} values")
    if _nesting_depth_up_to_limit(raw) > MAX_DEPTH:
        raise refuse(f"it is nested deeper than {MAX_DEPTH}")
    try:
        return json.loads(
            raw.decode("utf-8"), object_pairs_hook=_make_dict_refusing_duplicates,
            parse_constant=_raise_for_nan_or_infinity, parse_int=_parse_bounded_int,
            parse_float=_parse_bounded_finite_float,
        )  # fmt: skip
    except (ValueError, RecursionError) as error:
        raise refuse(str(error)[:200]) from error


def _nesting_depth_up_to_limit(raw: bytes) -> int:
    """How deep brackets are nested, without parsing: json's own limit is the interpreter's stack.

    Any result above MAX_DEPTH means "too deep". Each iteration removes the innermost pairs of brackets. Brackets
    left at the end are unbalanced; the parser refuses them.
    """
    if b"\\" in raw:
        raw = raw.replace(b"\\\\", b"").replace(b'\\"', b"")
    left = raw.translate(_ONE_KIND, _NO_BRACKETS).replace(b'""', b"")
    if b'"' in left:  # brackets in strings
        left = b"".join(left.split(b'"')[::2])
    for depth in range(MAX_DEPTH + 1):
        fewer = left.replace(b"[]", b"")
        if len(fewer) == len(left):
            return max(depth, left.count(b"["))
        left = fewer
    return MAX_DEPTH + 1


_ONE_KIND = bytes.maketrans(b"{}", b"[]")
_NO_BRACKETS = bytes(set(range(256)) - set(b'[]{}"'))


def _make_dict_refusing_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key stands twice in one object")
    return found


def _raise_for_nan_or_infinity(name: str) -> Any:
    raise ValueError(f"{name} is no JSON number")


def _parse_bounded_int(text: str) -> int:
    if len(text) > MAX_NUMBER_LENGTH:
        raise ValueError(f"a number has {len(text)} digits")
    return int(text)


def _parse_bounded_finite_float(text: str) -> float:
    if len(text) > 10 * MAX_NUMBER_LENGTH:
        raise ValueError(f"a number has {len(text)} digits")
    value = float(text)
    if value != value or value in (float("inf"), float("-inf")):
        raise ValueError("a number is too large")
    return value


SchemaErrorFinder = Callable[[Any], str]
"""Returns "" for a valid value, else the path of the error and a description: "processes/main/steps: ..."."""
_KINDS: dict[str, tuple[type, ...]] = {
    "object": (dict,), "array": (list,), "string": (str,), "integer": (int,), "boolean": (bool,),
    "null": (type(None),),
}  # fmt: skip
_IGNORED_KEYWORDS = {"$schema", "$defs", "title", "description"}


def compile_schema(schema: dict[str, Any]) -> SchemaErrorFinder:
    """Compile a schema to a function. Raises ValueError for an unsupported keyword."""
    return _compile(schema, schema.get("$defs", {}))


def _compile(schema: dict[str, Any], definitions: dict[str, Any]) -> SchemaErrorFinder:
    keywords = {key: value for key, value in schema.items() if key not in _IGNORED_KEYWORDS}
    if "$ref" in keywords:
        return _compile(definitions[keywords["$ref"].removeprefix("#/$defs/")], definitions)
    if "anyOf" in keywords:
        return _make_any_of_error_finder([_compile(each, definitions) for each in keywords["anyOf"]])
    if "const" in keywords or "enum" in keywords:
        return _make_one_of_error_finder(keywords["enum"] if "enum" in keywords else [keywords["const"]])
    if not keywords:
        return lambda value: ""
    kind = keywords.pop("type")
    make = {
        "object": _compile_object,
        "array": _compile_array,
        "string": _compile_string,
        "integer": _compile_integer,
    }.get(kind)
    inner = make(keywords, definitions) if make is not None else lambda value: ""
    if keywords:
        raise ValueError(f"the schema says {', '.join(keywords)} of {kind}, which is not known here")
    kinds = _KINDS[kind]

    def find_error(value: Any) -> str:
        if type(value) not in kinds:  # not isinstance: True is not a number here
            return f": {_describe_json_type(value)} instead of {kind}"
        return inner(value)

    return find_error


def _make_any_of_error_finder(alternatives: list[SchemaErrorFinder]) -> SchemaErrorFinder:
    def find_error(value: Any) -> str:
        errors = [find_error_of_alternative(value) for find_error_of_alternative in alternatives]
        return "" if "" in errors else max(errors, key=lambda error: error.find(": "))  # the one that got furthest

    return find_error


def _make_one_of_error_finder(values: list[Any]) -> SchemaErrorFinder:
    known = [(type(value), value) for value in values]
    return lambda value: "" if (type(value), value) in known else f": not one of {', '.join(map(repr, values))}"


def _compile_object(keywords: dict[str, Any], definitions: dict[str, Any]) -> SchemaErrorFinder:
    members = {name: _compile(each, definitions) for name, each in keywords.pop("properties", {}).items()}
    required = keywords.pop("required", [])
    rest = keywords.pop("additionalProperties", True)
    others = _compile(rest, definitions) if isinstance(rest, dict) else None
    most, longest = keywords.pop("maxProperties", None), keywords.pop("propertyNames", {}).get("maxLength")

    def find_error(value: dict[str, Any]) -> str:
        for name in required:
            if name not in value:
                return f": {name} is required and missing"
        if most is not None and len(value) > most:
            return f": {len(value)} entries, at most {most} may be there"
        for name, inner in value.items():
            if longest is not None and len(name) > longest:
                return f": a name has {len(name)} characters, at most {longest}"
            inside = members.get(name, others)
            if inside is None:
                if rest is False:
                    return f": {name} has no place there"
            elif error := inside(inner):
                return f"/{name}{error}"
        return ""

    return find_error


def _compile_array(keywords: dict[str, Any], definitions: dict[str, Any]) -> SchemaErrorFinder:
    items = _compile(keywords.pop("items", {}), definitions)
    most, unique = keywords.pop("maxItems", None), keywords.pop("uniqueItems", False)

    def find_error(value: list[Any]) -> str:
        if most is not None and len(value) > most:
            return f": {len(value)} entries, at most {most} may be there"
        for at, inner in enumerate(value):
            if error := items(inner):
                return f"/{at}{error}"
        return ": something stands there twice" if unique and len(set(value)) < len(value) else ""

    return find_error


def _compile_string(keywords: dict[str, Any], definitions: dict[str, Any]) -> SchemaErrorFinder:
    longest, text = keywords.pop("maxLength", None), keywords.pop("pattern", None)
    pattern = re.compile(text) if text is not None else None

    def find_error(value: str) -> str:
        if longest is not None and len(value) > longest:
            return f": {len(value)} characters, at most {longest}"
        # fullmatch, because `$` also matches before a final line break.
        return f": not of the form {text}" if pattern is not None and pattern.fullmatch(value) is None else ""

    return find_error


def _compile_integer(keywords: dict[str, Any], definitions: dict[str, Any]) -> SchemaErrorFinder:
    low, high = keywords.pop("minimum", None), keywords.pop("maximum", None)

    def find_error(value: int) -> str:
        wrong = (low is not None and value < low) or (high is not None and value > high)
        return f": {value} is not from {low} to {high}" if wrong else ""

    return find_error


def _describe_json_type(value: Any) -> str:
    return next((name for name, kinds in _KINDS.items() if type(value) in kinds), "a fraction")

"""Validate a value against the schema of receipts, and stop at the first error.

Only the keywords that receipt.schema.json uses are supported: a general validator takes minutes for a receipt of
64 MiB, and longer if it has many errors. `tests/test_schema_check.py` compares the two.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

Check = Callable[[Any], str]
"""Returns "" for a valid value, else the path of the error and a description: "processes/main/steps: ..."."""
_KINDS: dict[str, tuple[type, ...]] = {
    "object": (dict,), "array": (list,), "string": (str,), "integer": (int,), "boolean": (bool,),
    "null": (type(None),),
}  # fmt: skip
_IGNORED_KEYWORDS = {"$schema", "$defs", "title", "description"}


def compile_schema(schema: dict[str, Any]) -> Check:
    """Compile a schema to a function. Raises ValueError for an unsupported keyword."""
    return _compile(schema, schema.get("$defs", {}))


def _compile(schema: dict[str, Any], definitions: dict[str, Any]) -> Check:
    keywords = {key: value for key, value in schema.items() if key not in _IGNORED_KEYWORDS}
    if "$ref" in keywords:
        return _compile(definitions[keywords["$ref"].removeprefix("#/$defs/")], definitions)
    if "anyOf" in keywords:
        return _make_any_of_check([_compile(each, definitions) for each in keywords["anyOf"]])
    if "const" in keywords or "enum" in keywords:
        return _make_one_of_check(keywords["enum"] if "enum" in keywords else [keywords["const"]])
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

    def check(value: Any) -> str:
        if type(value) not in kinds:  # not isinstance: True is not a number here
            return f": {_json_type_name(value)} instead of {kind}"
        return inner(value)

    return check


def _make_any_of_check(checks: list[Check]) -> Check:
    def check(value: Any) -> str:
        errors = [check_one(value) for check_one in checks]
        return "" if "" in errors else max(errors, key=lambda error: error.find(": "))  # the one that got furthest

    return check


def _make_one_of_check(values: list[Any]) -> Check:
    known = [(type(value), value) for value in values]
    return lambda value: "" if (type(value), value) in known else f": not one of {', '.join(map(repr, values))}"


def _compile_object(keywords: dict[str, Any], definitions: dict[str, Any]) -> Check:
    members = {name: _compile(each, definitions) for name, each in keywords.pop("properties", {}).items()}
    required = keywords.pop("required", [])
    rest = keywords.pop("additionalProperties", True)
    others = _compile(rest, definitions) if isinstance(rest, dict) else None
    most, longest = keywords.pop("maxProperties", None), keywords.pop("propertyNames", {}).get("maxLength")

    def check(value: dict[str, Any]) -> str:
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

    return check


def _compile_array(keywords: dict[str, Any], definitions: dict[str, Any]) -> Check:
    items = _compile(keywords.pop("items", {}), definitions)
    most, unique = keywords.pop("maxItems", None), keywords.pop("uniqueItems", False)

    def check(value: list[Any]) -> str:
        if most is not None and len(value) > most:
            return f": {len(value)} entries, at most {most} may be there"
        for at, inner in enumerate(value):
            if error := items(inner):
                return f"/{at}{error}"
        return ": something stands there twice" if unique and len(set(value)) < len(value) else ""

    return check


def _compile_string(keywords: dict[str, Any], definitions: dict[str, Any]) -> Check:
    longest, text = keywords.pop("maxLength", None), keywords.pop("pattern", None)
    pattern = re.compile(text) if text is not None else None

    def check(value: str) -> str:
        if longest is not None and len(value) > longest:
            return f": {len(value)} characters, at most {longest}"
        # fullmatch, because `$` also matches before a final line break.
        return f": not of the form {text}" if pattern is not None and pattern.fullmatch(value) is None else ""

    return check


def _compile_integer(keywords: dict[str, Any], definitions: dict[str, Any]) -> Check:
    low, high = keywords.pop("minimum", None), keywords.pop("maximum", None)

    def check(value: int) -> str:
        wrong = (low is not None and value < low) or (high is not None and value > high)
        return f": {value} is not from {low} to {high}" if wrong else ""

    return check


def _json_type_name(value: Any) -> str:
    return next((name for name, kinds in _KINDS.items() if type(value) in kinds), "a fraction")

"""A variable is given the values that it had in another run."""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from watched_program import run

from samerun.check.evidence.line_search import find_first_differing_variable
from samerun.record.config import HeldEnvironment, HeldVariables
from samerun.record.digests.variable_digests import digest_variable
from samerun.record.watching.held_variables import NOT_HELD, CannotHold, ObjectPool, describe, rebuild

PROGRAM = """
class Layer:
    def __init__(self, width):
        self.width = width

class Trainer:
    def __init__(self, name):
        self.name = f"{name}-{hash(name)}"  # self
        self.steps = 3

def number_letters(letters):
    index = {}
    for letter in letters:  # letter
        index[letter] = len(index)
    return index

def bucket(word):
    return hash(word) % 1000  # bucket

def double(value):
    return 2 * value

TEXT = set("the quick brown fox jumps over it")
alias = whole = list(TEXT)  # list
print("list", "".join(alias))
print("letter", number_letters(TEXT))
print("self", vars(Trainer("run")))
place = bucket("red")  # place
print("place", place)
print("call", double(hash("blue")))  # call
layers = {name: Layer(len(name)) for name in sorted(["one", "three", "seventeen"])}
order = [layers[name] for name in set(layers)]  # order
print("order", [layer.width for layer in order])
print("shown", bucket("unheld"))
"""


def run_twice(folder: Path, *variables: tuple[str, str]) -> tuple[Any, Any, bool]:
    """The run with these variables (name, mark of the line) saved, the one with them held, and whether they were."""
    script = folder / "program.py"
    script.write_text(PROGRAM)
    lines = PROGRAM.splitlines()
    where = tuple(
        (str(script), next(n for n, line in enumerate(lines, 1) if line.endswith(f"# {mark}")), name)
        for name, mark in variables
    )
    held = folder / "held"
    held.mkdir()
    runs = [
        run(script, folder / seed, environment={"PYTHONHASHSEED": seed}, trace_lines=True,
            held_variables=HeldVariables(str(held), seed == "1", where))
        for seed in ("1", "2")
    ]  # fmt: skip
    return runs[0], runs[1], not (held / NOT_HELD).exists()


@pytest.mark.parametrize(
    ("name", "mark"),
    [("whole", "list"), ("letter", "letter"), ("self", "self"), ("place", "place"), ("double(value)", "call"),
     ("order", "order")],
)  # fmt: skip
def test_a_held_variable_has_the_values_of_the_other_run(name: str, mark: str, tmp_path: Path) -> None:
    saved, held, is_held = run_twice(tmp_path, (name, mark))
    assert is_held
    pairs = zip(saved.stdout.decode().splitlines(), held.stdout.decode().splitlines(), strict=True)
    same = {one.split()[0] for one, other in pairs if one == other}
    assert same == {mark}  # all else still depends on the hash seed


def test_what_is_made_of_a_held_variable_no_longer_differs(tmp_path: Path) -> None:
    runs = run_twice(tmp_path, ("whole", "list"), ("letter", "letter"))[:2]
    found = find_first_differing_variable(*runs)
    assert found is not None and (found.variable, found.line) == ("self", runs[0].line("self"))
    everywhere = replace(found, line=0)
    after = find_first_differing_variable(*runs, [everywhere])
    assert after is not None and after.variable not in ("self", "whole", "letter")


def test_a_result_is_held_in_the_variable_that_takes_it(tmp_path: Path) -> None:
    saved, held, _ = run_twice(
        tmp_path, ("whole", "list"), ("alias", "list"), ("letter", "letter"), ("self", "self"), ("order", "order")
    )
    found = find_first_differing_variable(saved, held)
    assert found is not None and (found.variable, found.line) == ("bucket()", saved.line("bucket"))
    assert found.holders == ((str(saved.script), saved.line("place"), "place"),)


READS = """
import os
print(os.environ.get("COLOUR", "none"), os.getenv("LOST", "none"))  # held
print(os.environ.get("COLOUR", "none"))
"""


def test_the_environment_is_held_at_one_line(tmp_path: Path) -> None:
    script = tmp_path / "program.py"
    script.write_text(READS)
    held = HeldEnvironment(str(script), 3, {"COLOUR": "red", "LOST": None})
    done = run(script, tmp_path / "held", environment={"COLOUR": "blue", "LOST": "found"}, held_environment=held)
    assert done.stdout.decode().split("\n")[:2] == ["red none", "blue"]


class Box:
    def __init__(self, **attributes: Any) -> None:
        self.__dict__.update(attributes)


VALUES: dict[str, tuple[Any, Any]] = {
    "numbers": ([1, -0.0, 2.5, None, True, "x", b"y", 10**30], [0.0]),
    "not finite": ((float("inf"), float("-inf"), float("nan")), ()),
    "nested": ({"a": [{"b": (1, {2, 3})}], "c": frozenset("xy")}, {"c": 1, "a": []}),
    "deque": (deque([3, 1, 2]), deque([1, 2, 3])),
    "array": (np.arange(6.0).reshape(2, 3), np.zeros(2)),
    "tensor": (torch.arange(6.0).reshape(2, 3), torch.zeros(2, 3)),
    "other tensor": (torch.tensor([[True, False], [True, True]]).T, torch.zeros(3)),
    "no tensor": (torch.zeros(0, 2), None),
    "scalar": (np.float32(0.1), np.float32(0.2)),
    "dates": ([datetime(2024, 1, 2, tzinfo=timezone.utc), timedelta(1, 2)], None),
    "exact numbers": ((Decimal("0.10"), Fraction(1, 3)), ()),
    "attributes": (Box(name="a", inner=Box(n=[1, 2])), Box(name="b", inner=Box(n=[2]))),
}


@pytest.mark.parametrize("name", VALUES)
def test_a_value_is_rebuilt(name: str) -> None:
    value, other = VALUES[name]
    made = rebuild(describe(value, [0]), other, ObjectPool())
    assert digest_variable(made) == digest_variable(value)
    if isinstance(value, (dict, deque, Box)) or name == "tensor":
        assert made is other  # changed in place


def test_modules_are_put_in_order() -> None:
    layers = [torch.nn.Sequential(torch.nn.Linear(3, 3)) for _ in range(4)]
    present = [layers[n] for n in (2, 0, 3, 1)]
    assert digest_variable(present) != digest_variable(layers)
    made = rebuild(describe(layers, [0]), present, ObjectPool({"present": list(present)}))
    assert all(one is other for one, other in zip(made, layers, strict=True))


def test_objects_are_put_in_order_but_not_made() -> None:
    one, two = Box(n=1), Box(n=2)
    present = [two, one]
    made = rebuild(describe([Box(n=1), Box(n=2)], [0]), present, ObjectPool({"present": list(present)}))
    assert made is present and made[0] is one and made[1] is two
    with pytest.raises(CannotHold):
        rebuild(describe([Box(n=1)], [0]), [3], ObjectPool())

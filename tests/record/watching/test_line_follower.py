"""Following lines: what a program does with all of its environment is not where two runs part."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from watched_program import run

from samerun.check.evidence.line_search import find_first_differing_variable, find_origin_outside_statement

PROGRAM = """
import os

def read_settings(prefix):
    found = {}
    for name, value in os.environ.items():
        if name.startswith(prefix):
            found[name] = value
    return found

def pairs():
    for item in sorted(os.environ.items()):
        yield item

class Config:
    def __init__(self):
        self.environment = os.environ.copy()

settings = read_settings("APPLICATION_")
copied, values = dict(os.environ), [value for _, value in os.environ.items()]
lowered = {name.lower(): value for name, value in os.environ.items()}
every, config, live = list(pairs()), Config(), os.environ
seed = int(os.environ.get("SEED", "0"))  # by name
letters = list({letter for letter in "to be or not to be that is the question"})  # order
"""


def first_difference(folder: Path, first: dict[str, str], second: dict[str, str]) -> Any:
    folder.mkdir()
    script = folder / "program.py"
    script.write_text(PROGRAM)
    runs: list[Any] = [
        run(script, folder / str(n), environment=each, trace_lines=True) for n, each in enumerate((first, second))
    ]
    found = find_first_differing_variable(*runs)
    return found and (found.variable, found.line == runs[0].line("order"), found.line == runs[0].line("by name"))


def test_all_of_the_environment_is_not_a_value(tmp_path: Path) -> None:
    one, other = {"PYTHONHASHSEED": "1", "TZ": "UTC"}, {"PYTHONHASHSEED": "2", "TZ": "Asia/Tokyo"}
    assert first_difference(tmp_path / "hashes", one, other) == ("letters", True, False)
    assert first_difference(tmp_path / "same", one, {**one, "TZ": "Asia/Tokyo"}) is None
    named = first_difference(tmp_path / "named", {**one, "SEED": "1"}, {**one, "SEED": "2"})
    assert named == ("seed", False, True)  # what is asked for by name is one


FRIENDS = """
friends = {"ann": {"bob", "cyd", "dan"}, "bob": {"ann", "eve"}, "cyd": {"ann", "dan", "gil"}, "eve": {"bob", "cyd"}}
edges = []
for person, others in friends.items():
    for other in others:  # order
        edges.append(person)
"""


def test_a_variable_that_keeps_its_value_for_once_is_the_one_that_differs(tmp_path: Path) -> None:
    """Whether the last friend of one is the first of the next depends on the order of the sets."""
    script = tmp_path / "program.py"
    script.write_text(FRIENDS)
    seeds = [run(script, tmp_path / str(n), environment={"PYTHONHASHSEED": str(n)}, trace_lines=True) for n in range(6)]
    first: Any = seeds[0]
    found = [find_first_differing_variable(first, each) for each in seeds[1:]]  # type: ignore[arg-type]
    assert {(one.variable, one.line) for one in found if one is not None} == {("other", first.line("order"))}


def test_packages_in_a_folder_of_their_own_are_no_user_code(tmp_path: Path) -> None:
    """`pip install --target`: the folder is put on PYTHONPATH."""
    for name in ("packages/thing-1.0.dist-info", "packages/thing", "own/mine"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "train.py").write_text("""
import sys
from samerun.base.user_code import is_user_code
for name in ("packages/thing/a.py", "own/mine/a.py", "a.py"):
    print(is_user_code(f"{sys.argv[1]}/{name}", "a"))
""")
    path = f"{tmp_path}/packages:{tmp_path}/own"
    done = subprocess.run([sys.executable, "train.py", str(tmp_path)], cwd=tmp_path, env={"PYTHONPATH": path},
                          capture_output=True, text=True, check=True)  # fmt: skip
    assert done.stdout.split() == ["False", "True", "True"]


RANKS = """
import os, subprocess, sys, torch

def seed_of(name):
    text = name * 2
    return 7 + hash(text) % 1000  # made

def seed_all(number):
    torch.manual_seed(number)  # seeded

if "RANK" not in os.environ:
    for rank in "01":
        environment = {**os.environ, "RANK": rank, "TORCHELASTIC_RUN_ID": "none"}
        subprocess.run([sys.executable, __file__], env=environment, check=True)
elif os.environ["RANK"] == "1":
    unused = hash("a label")
    other = seed_of("rank")
    twice = other * 2
    seed_all(twice)
    print(torch.rand(1))
else:
    nothing = hash("on rank 0 too")
"""


@pytest.mark.exhaustive
def test_the_lines_of_the_rank_that_differs_are_followed_back_to_where_its_seed_is_made(tmp_path: Path) -> None:
    script = tmp_path / "program.py"
    script.write_text(RANKS)
    runs = (run(script, tmp_path / n, environment={"PYTHONHASHSEED": n}, trace_lines=True) for n in "12")
    a, b = list[Any](runs)
    assert set(a.traces.traces) == {"main", "rank0", "rank1"}
    places = {name: a.line(name) for name in ("made", "seeded")}
    found = find_origin_outside_statement(a, b, "rank1", str(script), places["seeded"])
    assert found == (str(script), places["made"], "seed_of()")
    of_rank, of_first = (find_first_differing_variable(a, b, role=role) for role in ("rank1", "rank0"))
    assert (of_rank.variable, of_first.variable) == ("unused", "nothing")

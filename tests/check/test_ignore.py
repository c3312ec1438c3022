"""`check --ignore` and `check --fix on`: what is not counted, what stands behind it, and what samerun alone mends."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from check_command import check, samerun

from samerun.base.errors import SamerunError
from samerun.base.records import FoundCause
from samerun.check.search.findings import IgnoreRule, parse_ignore_rule

TWO_GENERATORS = """
import numpy as np
import torch
one = np.random.default_rng()
x = torch.ones(3) * one.random()
two = np.random.default_rng()
print((x + two.random()).sum() > -1)
"""

MENDED = """
import random
import torch
model = torch.nn.Linear(2, 1)
print(model(torch.ones(1, 2)) * random.random() is not None)
"""

NOT_MENDED = MENDED.replace("import random\n", "import random, time\nrandom.seed(time.time_ns())\n")


def write(folder: Path, text: str) -> str:
    (folder / "program.py").write_text(text)
    return "program.py"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("time", ("time", "", 0)),
        ("time:train.py", ("time", "train.py", 0)),
        ("time:src/train.py:12", ("time", "src/train.py", 12)),
    ],
)
def test_a_rule_is_read(text: str, expected: tuple[str, str, int]) -> None:
    assert parse_ignore_rule(text) == IgnoreRule(*expected, text)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("unseeded-numpy", "Did you mean unseeded-numpy-global?"),
        ("sunshine", "there is no kind of cause 'sunshine'"),
        ("time:", "no file is named"),
        ("time:train.py:0", "lines count from 1"),
        ("time:train.py:x", "'x' is no line"),
        ("", "there is no kind of cause ''"),
    ],
)
def test_a_rule_that_cannot_be_meant(text: str, words: str, tmp_path: Path) -> None:
    with pytest.raises(SamerunError, match="--ignore") as error:
        parse_ignore_rule(text)
    assert words in str(error.value)


@pytest.mark.parametrize(
    ("rule", "kind", "file", "line", "covered"),
    [
        ("time", "time", "a.py", 3, True),
        ("time", "unknown", "a.py", 3, False),
        ("time:a.py", "time", "./a.py", 9, True),
        ("time:a.py", "time", "b.py", 9, False),
        ("time:a.py", "time", "", 0, False),
        ("time:a.py:9", "time", "a.py", 9, True),
        ("time:a.py:9", "time", "a.py", 8, False),
    ],
)
def test_what_a_rule_covers(rule: str, kind: str, file: str, line: int, covered: bool) -> None:
    assert parse_ignore_rule(rule).matches(FoundCause(kind, file, line, (), True)) is covered


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--ignore", "unseeded-pyhton", "program.py"], "Did you mean unseeded-python?"),
        (["--seed", "3", "program.py"], "only given with --fix on"),
        (["--fix", "yes", "program.py"], "'yes'"),
    ],
)
def test_bad_options_are_trouble(arguments: list[str], words: str, tmp_path: Path) -> None:
    write(tmp_path, TWO_GENERATORS)
    done = samerun(["check", *arguments], tmp_path)
    assert done.returncode == 2
    assert words in done.stderr and "Traceback" not in done.stderr


@pytest.mark.exhaustive
def test_what_stands_behind_an_ignored_line_shows(tmp_path: Path) -> None:
    program = write(tmp_path, TWO_GENERATORS)
    rule = "unseeded-numpy-generator:program.py:4"
    code, report = check(["--vary", "rerun", "--ignore", rule, program], tmp_path)
    assert code == 1
    assert (report["cause"]["kind"], report["cause"]["line"]) == ("unseeded-numpy-generator", 6)
    assert [(c["line"], c["ignored"]) for c in report["causes"]] == [(6, False), (4, True)]
    assert any("program.py:4" in note for note in report["notes"])


@pytest.mark.exhaustive
def test_nothing_left_is_same(tmp_path: Path) -> None:
    program = write(tmp_path, TWO_GENERATORS)
    rules = ["--ignore", "unseeded-numpy-generator", "--ignore", "time"]
    done = samerun(["check", "--vary", "rerun", *rules, "--json", "r.json", program], tmp_path)
    report = json.loads((tmp_path / "r.json").read_text())
    assert done.returncode == 0, done.stdout + done.stderr
    assert report["verdict"] == "same" and report["first_difference"] is report["cause"] is None
    assert [(c["line"], c["ignored"]) for c in report["causes"]] == [(4, True), (6, True)]
    assert "but for what is ignored" in done.stdout
    assert "--ignore time matched nothing." in report["notes"]


@pytest.mark.exhaustive
def test_a_variation_that_is_ignored_is_held(tmp_path: Path) -> None:
    program = "import datetime, os, torch\nx = torch.ones(2)\nx = x * datetime.date.today().year\n"
    program += "os.makedirs('d', exist_ok=True)\nfor n in 'abc': open('d/' + n, 'w').close()\n"
    program += "for i, n in enumerate(os.listdir('d')): x = x + i * ord(n)\n"
    chosen = ["--vary", "rerun,clock,listing_order", write(tmp_path, program)]
    code, report = check(["--ignore", "time", *chosen], tmp_path)
    assert (code, report["cause"]["kind"]) == (1, "listing-order")
    code, report = check(["--ignore", "time", "--ignore", "listing-order", *chosen], tmp_path)
    assert (code, report["verdict"]) == (0, "same")


@pytest.mark.exhaustive
def test_what_samerun_alone_mends(tmp_path: Path) -> None:
    program = write(tmp_path, MENDED.replace(" * random.random()", ""))
    code, report = check(["--vary", "rerun", "--fix", "on", "--seed", "3", program], tmp_path)
    assert code == 1  # the program as it stands
    assert [(c["kind"], c["line"], c["mended"]) for c in report["causes"]] == [("unseeded-torch", 4, True)]
    assert report["with_samerun"]["verdict"] == "same" and report["with_samerun"]["seed"] == 3
    assert report["with_samerun"]["detail"] in report["notes"]


@pytest.mark.exhaustive
def test_every_hazard_is_named_and_what_is_left(tmp_path: Path) -> None:
    program = write(tmp_path, NOT_MENDED)
    code, report = check(["--vary", "rerun", "--fix", "on", program], tmp_path)
    assert code == 1
    found = {(c["kind"], c["line"]): c["mended"] for c in report["causes"]}
    assert found == {("unseeded-torch", 5): True, ("time", 3): False}
    assert report["cause"]["kind"] == report["causes"][0]["kind"] == "unseeded-torch"
    assert report["with_samerun"]["verdict"] == "different"
    assert [(c["kind"], c["line"]) for c in report["with_samerun"]["left"]] == [("time", 3)]


OF_ONE_SOURCE = {
    "os-entropy": "os.urandom(1)[0]",
    "unseeded-python": "random.Random().random()",
    "unseeded-torch-generator": "(torch.Generator().seed() % 1000)",
}


@pytest.mark.exhaustive
@pytest.mark.parametrize("kind", OF_ONE_SOURCE)
def test_two_hazards_of_one_source_are_both_named(kind: str, tmp_path: Path) -> None:
    program = "import os, random, torch\nx = torch.ones(3)\nx = x * VALUE\nx = x.relu()\nx = x + VALUE\n"
    code, report = check(
        ["--fix", "on", "--vary", "rerun", write(tmp_path, program.replace("VALUE", OF_ONE_SOURCE[kind]))], tmp_path
    )
    assert code == 1
    assert [(c["kind"], c["line"]) for c in report["causes"]] == [(kind, 3), (kind, 5)]


@pytest.mark.exhaustive
def test_a_clean_program_has_nothing_to_mend(tmp_path: Path) -> None:
    program = write(tmp_path, "import torch\ntorch.manual_seed(0)\nprint(torch.rand(3))\n")
    code, report = check(["--vary", "rerun", "--fix", "on", program], tmp_path)
    assert code == 0
    assert report["causes"] == [] and report["with_samerun"] is None


@pytest.mark.exhaustive
def test_a_program_that_samerun_makes_fail(tmp_path: Path) -> None:
    program = "import torch\nx = torch.rand(3)\nassert not torch.are_deterministic_algorithms_enabled(), 'too strict'\n"
    code, report = check(["--vary", "rerun", "--fix", "on", write(tmp_path, program)], tmp_path)
    assert code == 1
    assert report["with_samerun"]["verdict"] == "trouble"
    assert "too strict" in report["with_samerun"]["detail"]
    assert report["causes"][0]["mended"] is None

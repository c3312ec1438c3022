"""The HTML report: one file, nothing fetched, nothing of the user's program taken for markup."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from check_command import samerun
from html_page import EVIL, Page

from samerun.base.machine import collect_machine_facts
from samerun.base.records import CheckReport, Divergence, FirstDifference, Fix, FoundCause, Growth, Outcome, RunRecord
from samerun.check.evidence.value_differences import to_step_ranges
from samerun.report.html import check_report_to_html, group_steps_evenly
from samerun.report.terminal import describe_divergence

GROWTH = (
    Growth(2, 1, 8, 8, 1e-7, 1, 1e-8, (0.5, 0.5)),
    Growth(3, 8, 8, 8, 1e-3, 9999, 1e-4, (0.25, 0.26)),
    Growth(4, 0, 8, 8, None, None, None, None),
)


def report(word: str, file: str) -> CheckReport:
    return CheckReport(
        "different",
        (word,),
        variations=(Outcome(word, "different", word),),
        runs=(RunRecord(word, (word,), 0, 4, 9, 0.5, None),),
        first_difference=FirstDifference(word, 3, 2, "forward", word, word, file, 2, "same", 3, 8, 0.25, 7),
        cause=FoundCause("time", file, 2, (word,), True),
        fix=Fix(word, word, "docs/causes.md#time"),
        notes=(word,),
        others=(FoundCause("unknown", word, 1, (), False),),
        spread=Divergence(4, ((2, 3),), (("params", 2),), "different", GROWTH),
    )


@pytest.fixture
def source(tmp_path: Path) -> str:
    path = tmp_path / "train.py"
    path.write_text(f"first\n{EVIL}\nthird\n")
    return str(path)


def test_everything_of_the_users_is_escaped(source: str) -> None:
    text = check_report_to_html(report(EVIL, source), "0", collect_machine_facts())
    page = Page(text)
    assert "script" not in page.tags and "<script" not in text
    assert "{{ 7 * 7 }}" in text and "&amp;49" not in text
    assert "".join(page.words).count(EVIL) >= 10


def test_nothing_is_fetched(source: str) -> None:
    page = Page(check_report_to_html(report("word", source), "0", collect_machine_facts()))
    assert not {"script", "link", "img", "iframe"} & set(page.tags)
    assert not [value for name, value in page.attributes if name in ("src", "action") or "://" in value]
    ids = {value for name, value in page.attributes if name == "id"}
    assert {value[1:] for name, value in page.attributes if name == "href"} <= ids


def test_a_keyboard_reaches_what_scrolls(source: str) -> None:
    text = check_report_to_html(report("word", source), "0", collect_machine_facts())
    for opening in re.findall(r"<pre[^>]*>|<div class=\"scroll\"[^>]*>", text):
        assert 'tabindex="0"' in opening and "aria-label" in opening


def test_the_hazards_line_is_marked(source: str) -> None:
    text = check_report_to_html(report("word", source), "0", collect_machine_facts())
    marked = re.findall(r'<span class="marked">(.*?)\n</span>', text, re.S)
    assert len(marked) == 2 and all("alert" in one for one in marked)


@pytest.mark.parametrize("verdict", ["same", "trouble"])
def test_reports_without_a_difference(verdict: str) -> None:
    page = Page(check_report_to_html(CheckReport(verdict, ("train.py",)), "0", collect_machine_facts()))
    assert verdict.upper() in page.words


@pytest.mark.parametrize("steps", [1, 7, 119, 120, 121, 1000, 12345])
def test_cells_cover_every_step_once(steps: int) -> None:
    second = (steps // 2 + 1, steps)
    spread = Divergence(steps, ((1, 1), second) if second[0] > 1 else ((1, 1),), (), "unknown")
    found = group_steps_evenly(spread)
    assert len(found) <= 120
    assert [found[0].first, found[-1].last] == [1, steps]
    assert all(a.last + 1 == b.first for a, b in pairwise(found))
    differing = sum(round(cell.part * (cell.last - cell.first + 1)) for cell in found)
    assert differing == len({1, *range(steps // 2 + 1, steps + 1)})


def test_ranges() -> None:
    assert to_step_ranges([]) == ()
    assert to_step_ranges([1, 3, 4]) == ((1, 1), (3, 4))


def test_the_spread_in_words() -> None:
    spread = Divergence(40, ((3, 5),), (("loss", 3),), "same")
    assert describe_divergence(spread) == [
        "3 of 40 optimizer steps differ (3-5); later ones are the same again",
        "First differing step per state: loss 3",
        "The model at the end is the same",
    ]
    many = replace(spread, different=tuple((n, n) for n in range(1, 40, 2)), end="unknown", leaves=())
    assert describe_divergence(many) == [
        "20 of 40 optimizer steps differ (1, 3, 5, 7 and 16 more stretches); later ones are the same again"
    ]


PROGRAM = """
import random
import torch
torch.manual_seed(0)
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(6):
    optimizer.zero_grad()
    scale = random.random() if step >= 2 else 1.0  # HOSTILE
    (model(torch.ones(2, 4)) * scale).sum().backward()
    optimizer.step()
"""


@pytest.mark.exhaustive
def test_a_whole_check(tmp_path: Path) -> None:
    """On a terminal and as a page: what is said, how wide it is, and that a line of source does nothing to either."""
    (tmp_path / "train.py").write_text(PROGRAM.replace("HOSTILE", "\x1b[2J \u202e " + "y" * 100_000), encoding="utf-8")
    words = ["check", "--html", "report.html", "--json", "report.json", "--vary", "rerun", "train.py"]
    done = samerun(words, tmp_path, COLUMNS="80", NO_COLOR="1", PYTHONIOENCODING="utf-8")
    assert done.returncode == 1 and done.stderr == ""
    lines = done.stdout.splitlines()
    assert lines[0].startswith("DIFFERENT  train.py") and max(len(line.rstrip()) for line in lines) <= 80
    assert "Cause  unseeded-python  confirmed by experiment" in done.stdout
    assert ">    9 |     scale = random.random() if step >= 2 else 1.0" in done.stdout and r"\x1b[2J" in done.stdout
    text = (tmp_path / "report.html").read_text(encoding="utf-8")
    for shown in (done.stdout, text):
        assert "\x1b" not in shown and "\u202e" not in shown
    page = Page(text)
    assert "DIFFERENT" in page.words and "unseeded-python" in page.words
    spread = json.loads((tmp_path / "report.json").read_text())["spread"]
    assert spread["different"] == [[3, 6]]
    assert [one["step"] for one in spread["growth"]][:2] == [3, 4] and spread["growth"][-1]["step"] == 6
    assert all(one["elements"] == 5 and one["elements_different"] and one["losses"] for one in spread["growth"])
    assert "Parameters: after step 3, " in done.stdout and "polyline" in page.tags
    assert "4 of 6 optimizer steps differ (3-6)" in done.stdout


def test_a_file_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(PROGRAM)
    done = samerun(["check", "--html", "/nowhere/report.html", "train.py"], tmp_path)
    assert done.returncode == 2 and "/nowhere/report.html" in done.stderr and "Traceback" not in done.stderr

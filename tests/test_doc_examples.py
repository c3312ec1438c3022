"""The examples of the pages in docs/ run as they stand."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

DOCS = Path(__file__).resolve().parents[1] / "docs"
PAGES = {"random-streams.md": 5, "pytorch-reproducibility.md": 3}
"""Page -> number of its examples, each of which runs in a process of its own."""
STORIES = {"data.md": 5, "portable.md": 3}
"""Page -> least number of its examples, which run one after the other: later ones use what earlier ones made."""


def examples(page: str) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```", (DOCS / page).read_text(encoding="utf-8"), re.M | re.S)


def run(program: str, folder: Path) -> None:
    environment = {**os.environ, "PYTHONHASHSEED": "0"}  # what `samerun run` sets
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program], cwd=folder, capture_output=True, text=True, env=environment
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("page", PAGES)
def test_there_are_examples(page: str) -> None:
    assert len(examples(page)) == PAGES[page]


@pytest.mark.parametrize(
    "example", [pytest.param(one, id=f"{page}-{n}") for page in PAGES for n, one in enumerate(examples(page))]
)
def test_an_example_runs(example: str, tmp_path: Path) -> None:
    run(example, tmp_path)


@pytest.mark.parametrize("page", STORIES)
def test_the_examples_of_a_page_run_in_order(page: str, tmp_path: Path) -> None:
    assert len(examples(page)) >= STORIES[page]
    program = tmp_path / "page.py"  # a file: the page starts workers
    program.write_text("\n\n".join(examples(page)), encoding="utf-8")
    run(f"import runpy; runpy.run_path({str(program)!r}, run_name='__main__')", tmp_path)

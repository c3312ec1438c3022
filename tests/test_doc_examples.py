"""The examples of the pages in docs/ run as they stand, each in a process of its own."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

DOCS = Path(__file__).resolve().parents[1] / "docs"
PAGES = {"random-streams.md": 5, "pytorch-reproducibility.md": 3}
"""Page -> number of its examples."""


def examples(page: str) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```", (DOCS / page).read_text(encoding="utf-8"), re.M | re.S)


@pytest.mark.parametrize("page", PAGES)
def test_there_are_examples(page: str) -> None:
    assert len(examples(page)) == PAGES[page]


@pytest.mark.parametrize(
    "example", [pytest.param(one, id=f"{page}-{n}") for page in PAGES for n, one in enumerate(examples(page))]
)
def test_an_example_runs(example: str) -> None:
    environment = {**os.environ, "PYTHONHASHSEED": "0"}  # what `samerun run` sets
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", example], capture_output=True, text=True, env=environment
    )
    assert done.returncode == 0, done.stderr

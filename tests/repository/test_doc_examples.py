"""The examples of README.md and of the pages in docs/ run as they stand: in plain Python, and in a notebook."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from repository_paths import ROOT

PAGES = {
    "README.md": 1, "docs/deterministic.md": 2, "docs/random-streams.md": 5, "docs/pytorch-reproducibility.md": 3,
    "docs/receipts.md": 4, "docs/guard.md": 1, "docs/batch-invariance.md": 1,
    "docs/howto/differs-on-the-cluster.md": 1,
    "docs/howto/loss-differs-after-resume.md": 1, "docs/howto/same-seed-another-image.md": 1,
}  # fmt: skip
"""Page -> number of its examples, each of which runs in a process of its own."""
STORIES = {"docs/data.md": 5, "docs/portable.md": 3, "docs/howto/different-with-more-workers.md": 1}
"""Page -> least number of its examples, which run one after the other: later ones use what earlier ones made."""
TUTORIAL = "docs/tutorial.md"
"""Its examples are files and commands: what a command prints, in order, and its exit code stand on the page."""
ONE_RANK = {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0"}
"""What torchrun sets."""

NOTEBOOK = """
import pathlib, sys
for number, cell in enumerate(pathlib.Path(sys.argv[1]).read_text(encoding="utf-8").split("\\0")):
    exec(compile(cell, f"<cell {number}>", "exec"), sys.modules["__main__"].__dict__)
"""


def examples(page: str) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```", (ROOT / page).read_text(encoding="utf-8"), re.M | re.S)


def run(words: list[str], folder: Path) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONHASHSEED"} | ONE_RANK
    done = subprocess.run(
        [sys.executable, "-W", "error", *words], cwd=folder, capture_output=True, text=True, env=environment,
        timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


def test_no_page_is_forgotten() -> None:
    with_examples = {str(page.relative_to(ROOT)) for page in (ROOT / "README.md", *(ROOT / "docs").rglob("*.md"))
                     if "```python" in page.read_text(encoding="utf-8")}  # fmt: skip
    assert with_examples == {*PAGES, *STORIES, TUTORIAL}
    assert {page: len(examples(page)) for page in PAGES} == PAGES


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    "example", [pytest.param(x, id=f"{page}-{n}") for page in PAGES for n, x in enumerate(examples(page))]
)
def test_an_example_runs(example: str, tmp_path: Path) -> None:
    run(["-c", example], tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize(
    "page", ["README.md", *(pytest.param(page, marks=pytest.mark.exhaustive) for page in PAGES if page != "README.md")]
)
def test_the_examples_of_a_page_are_cells_of_a_notebook(page: str, tmp_path: Path) -> None:
    cells = tmp_path / "cells"
    cells.write_text("\0".join(examples(page)), encoding="utf-8")
    run(["-c", NOTEBOOK, str(cells)], tmp_path)


@pytest.mark.exhaustive
@pytest.mark.parametrize("page", STORIES)
def test_the_examples_of_a_page_run_in_order(page: str, tmp_path: Path) -> None:
    assert len(examples(page)) >= STORIES[page]
    program = tmp_path / "page.py"  # a file: the page starts workers
    program.write_text("\n\n".join(examples(page)), encoding="utf-8")
    run([str(program)], tmp_path)


@pytest.mark.exhaustive
def test_the_tutorial_runs(tmp_path: Path) -> None:
    text = (ROOT / TUTORIAL).read_text(encoding="utf-8")
    blocks = re.findall(r"^```(\w+) title=\"(.*?)\"\n(.*?)^```", text, re.M | re.S)
    assert len(blocks) == text.count("```python") + text.count("```console") == 5
    for language, title, content in blocks:
        if language == "python":
            (tmp_path / title).write_text(content, encoding="utf-8")
            continue
        commands = re.findall(r"^\$ samerun (.*)\n((?:(?!\$ ).*\n)*)", content, re.M)
        assert commands
        for command, shown in commands:
            done = subprocess.run(
                [sys.executable, "-m", "samerun", *command.split()],
                cwd=tmp_path,
                capture_output=True,
                text=True,
                timeout=600,
            )
            assert title == f"exit code {done.returncode}", done.stdout + done.stderr
            at = 0
            for line in shown.splitlines():
                at = done.stdout.find(line.strip(), at)
                assert at >= 0, f"{line!r} does not stand in what `{command}` prints:\n{done.stdout}"

"""The examples of docs/random-streams.md run as they stand, each in a process of its own."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = Path(__file__).resolve().parents[1] / "docs/random-streams.md"
EXAMPLES = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.M | re.S)


def test_there_are_examples() -> None:
    assert len(EXAMPLES) == 5 and all("assert" in example for example in EXAMPLES)


@pytest.mark.parametrize("example", EXAMPLES, ids=range(len(EXAMPLES)))
def test_an_example_runs(example: str) -> None:
    done = subprocess.run([sys.executable, "-W", "error", "-c", example], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr

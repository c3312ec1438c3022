"""The examples on pages about the library run as they stand."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


@pytest.mark.parametrize("page", ["docs/data.md"])
def test_the_examples_of_a_page_run(page: str, tmp_path: Path) -> None:
    """One after the other, as one program: later ones use what earlier ones made."""
    blocks = re.findall(r"^```python\n(.*?)^```", (ROOT / page).read_text(encoding="utf-8"), re.M | re.S)
    assert len(blocks) >= 5
    program = tmp_path / "page.py"
    program.write_text("\n\n".join(blocks), encoding="utf-8")
    done = subprocess.run([sys.executable, "-W", "error", str(program)], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr

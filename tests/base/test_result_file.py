"""Files that results are written to: nothing else is overwritten."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = "import torch\nprint(torch.ones(2))\n"


def samerun(*words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "samerun", *words], cwd=cwd, capture_output=True, text=True, timeout=120
    )


@pytest.mark.parametrize("behind", [(), ("--", sys.executable, "-c", "1")], ids=["alone", "with-a-command"])
@pytest.mark.parametrize(
    "words", ["check --json", "check --html", "cost --json", "cost --html", "doctor --json", "run --json",
              "run --receipt", "log --json"],
)  # fmt: skip
def test_a_program_taken_for_an_options_value_is_left_as_it_is(
    words: str, behind: tuple[str, ...], tmp_path: Path
) -> None:
    (tmp_path / "train.py").write_text(PROGRAM)
    if words.startswith("log"):
        behind = ()
    done = samerun(*words.split(), "train.py", *behind, cwd=tmp_path)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    if (words, behind) != ("run --receipt", ()):  # says that no program is named
        assert "train.py: there is such a file, and it is not" in done.stderr
    assert (tmp_path / "train.py").read_text() == PROGRAM


@pytest.mark.exhaustive
def test_an_earlier_result_and_an_empty_file_are_written_again(tmp_path: Path) -> None:
    for before in ('{"verdict": "old"}', "", None):
        to = tmp_path / "found.json"
        if before is not None:
            to.write_text(before)
        assert samerun("doctor", "--json", "found.json", cwd=tmp_path).returncode in (0, 1)
        assert '"switches"' in to.read_text()
        to.unlink()

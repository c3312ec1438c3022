"""A watched program prints, returns and computes what it does unwatched."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from repository_paths import PROGRAMS, ROOT
from watched_program import run

EXAMPLES = ROOT / "examples"
ENVIRONMENT = {"PYTHONHASHSEED": "1", "OMP_NUM_THREADS": "1"}

NOT_RUN = {"hangs", "syntax_error"}
VARY_BY_THEMSELVES = {"digits_cnn_buggy", "char_gpt_buggy"}
SHORT = {
    "char_gpt": ("--epochs", "1", "--steps", "8"),
    "char_gpt_buggy": ("--epochs", "1", "--steps", "8"),
    "digits_cnn": ("--epochs", "1"),
    "digits_cnn_buggy": ("--epochs", "1"),
    "nanogpt": ("--max-iters", "4"),
    "dcgan": ("--num-epochs", "1"),
}
IN_CI = {"fails_deep_inside", "fork_workers", "random_subclass"}
"""Programs that are run with the slow tests; the rest with `make test-exhaustive`."""


def programs() -> list[object]:
    awkward = sorted((PROGRAMS / "awkward").glob("*.py"))
    trainers = sorted((PROGRAMS / "trainers").glob("*.py"))
    paths = [p for p in (*awkward, *sorted(EXAMPLES.glob("*.py")), *trainers) if p.stem not in NOT_RUN]
    marks = {True: pytest.mark.slow, False: pytest.mark.exhaustive}
    return [pytest.param(p, id=p.stem, marks=marks[p.stem in IN_CI]) for p in paths]


def said(output: bytes) -> list[bytes]:
    """Lines of output without those that tell how long something took."""
    return [line for line in output.splitlines(keepends=True) if not line.startswith(b"time:")]


def without_addresses(text: str) -> str:
    return re.sub(r"0x[0-9a-f]+", "0x", text)


@pytest.mark.parametrize("program", programs())
def test_watching_changes_nothing(program: Path, tmp_path: Path) -> None:
    arguments = SHORT.get(program.stem, ())
    plain, watched = (
        run(program, tmp_path / name, *arguments, watched=watch, environment=ENVIRONMENT, code=None)
        for name, watch in (("plain", False), ("watched", True))
    )
    assert watched.exit_code == plain.exit_code
    assert watched.traces.main is not None
    assert watched.traces.failures == []
    assert watched.traces.operator_count() > 0
    if program.stem not in VARY_BY_THEMSELVES:
        assert said(watched.stdout) == said(plain.stdout)
        assert without_addresses(watched.stderr) == without_addresses(plain.stderr)


@pytest.mark.exhaustive
def test_a_warning_in_a_backward_pass_names_the_users_line(tmp_path: Path) -> None:
    """A wrapper around `Tensor.backward` would move the place that `stacklevel` counts to."""
    script = tmp_path / "train.py"
    script.write_text(
        "import torch\n"
        "model = torch.nn.Linear(2, 2)\n"
        "model.register_full_backward_hook(lambda *_: None)\n"
        "optimizer = torch.optim.SGD(model.parameters(), 0.1)\n"
        "model(torch.ones(2)).sum().backward()\n"
        "optimizer.step()\n"
    )
    for watched in (["samerun", "run", "--quiet", "--receipt", "run.json", "train.py"], ["train.py"]):
        words = [sys.executable, *(["-m"] if len(watched) > 1 else []), *watched]
        done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stderr
        assert "train.py:5: UserWarning: Full backward hook is firing" in done.stderr

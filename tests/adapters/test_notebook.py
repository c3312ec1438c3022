"""`%load_ext samerun` and `%%samerun` in the shell of a notebook."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

SHELL = """
import contextlib, io, json, sys
from IPython.core.interactiveshell import InteractiveShell
shell = InteractiveShell.instance()
told = []
for cell in json.load(open(sys.argv[1])):
    errors = io.StringIO()
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(errors):
        result = shell.run_cell(cell, store_history=True)
    report = result.result
    told.append({"ok": result.success, "errors": errors.getvalue()})
    if hasattr(report, "_repr_html_"):
        told[-1] |= {"verdict": report.verdict, "text": repr(report), "page": report._repr_html_()}
        told[-1]["record"] = report.record
json.dump(told, open("told.json", "w"))
"""
CELLS = [
    "%load_ext samerun",
    "import helper, torch\nmodel = torch.nn.Linear(4, 1)\n%time 1 + 1",
    "broken = undefined_name",
    "%%samerun --vary rerun\nloss = model(torch.ones(2, 4)).sum()",
    "torch.manual_seed(helper.SEED); model = torch.nn.Linear(4, 1)",
    "%%samerun --alone --vary none\nimport torch\ntorch.ones(3).sum()",
    "%%samerun --vary none\n%time torch.ones(3)",
    "%%samerun train.py\ntorch.ones(3)",
    "%%samerun --vary none\nmodel(torch.ones(2, 4)).unknown()",
]


def test_cells_are_checked_behind_those_that_ran(tmp_path: Path) -> None:
    if importlib.util.find_spec("IPython") is None:
        pytest.skip("IPython is not installed; `make test-adapters` runs this")
    (tmp_path / "helper.py").write_text("SEED = 3\n")
    (tmp_path / "cells.json").write_text(json.dumps(CELLS))
    (tmp_path / "shell.py").write_text(SHELL)
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "shell.py", "cells.json"],
        cwd=tmp_path, capture_output=True, text=True, timeout=900,
        env={**os.environ, "IPYTHONDIR": str(tmp_path / "ipython")},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    _, _, broken, unseeded, _, alone, magic, program, failing = json.loads((tmp_path / "told.json").read_text())
    assert not broken["ok"]
    assert unseeded["verdict"] == "different" and "unseeded-torch" in unseeded["text"]
    assert unseeded["record"]["cause"]["file"].endswith("notebook.py"), "the cell that makes the model is replayed"
    assert unseeded["page"].startswith("<iframe sandbox srcdoc=") and "<script" not in unseeded["page"]
    assert alone["verdict"] == "same", alone
    assert "uses IPython itself" in magic["errors"] and "the cell is the program" in program["errors"]
    assert failing["verdict"] == "trouble" and "unknown" in failing["text"], failing

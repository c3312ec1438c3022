"""Make docs/assets/report.svg, the picture of a report in README.md, from what `samerun check` really prints.

    python tools/report_picture.py [OUTPUT]

OUTPUT: a file with the colours of a terminal in it, instead of a new run. The picture loads no font and runs nothing.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from io import StringIO
from pathlib import Path

from rich._export_format import CONSOLE_SVG_FORMAT
from rich.console import Console
from rich.terminal_theme import MONOKAI
from rich.text import Text

ROOT = Path(__file__).resolve().parent.parent
PICTURE = ROOT / "docs/assets/report.svg"
PROGRAM = "examples/digits_cnn_buggy.py"
LAST_SECTION = "\nFirst difference"
"""The picture ends before it: verdict, cause and fix are what a reader looks for."""


def main() -> None:
    words = sys.argv[1:]
    output = Path(words[0]).read_text(encoding="utf-8") if words else run_check()
    PICTURE.parent.mkdir(exist_ok=True)
    PICTURE.write_text(render_as_svg(output), encoding="utf-8")


def run_check() -> str:
    """What the check prints to a terminal of 80 columns."""
    environment = {**os.environ, "FORCE_COLOR": "1", "COLUMNS": "80", "TERM": "xterm-256color"}
    command = [sys.executable, "-m", "samerun", "check", PROGRAM]
    done = subprocess.run(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True)
    if done.returncode != 1:
        sys.exit(f"{PROGRAM} was expected to differ; exit code {done.returncode}")
    return done.stdout


def render_as_svg(output: str) -> str:
    """The first sections of a report, as a picture of a terminal."""
    console = Console(record=True, width=80, file=StringIO(), force_terminal=True, highlight=False)
    console.print(Text(f"$ samerun check {PROGRAM}", style="bold"))
    console.print(Text.from_ansi(output).split(LAST_SECTION)[0])
    without_fonts = re.sub(r"@font-face \{\{.*?\}\}\n", "", CONSOLE_SVG_FORMAT, flags=re.S)
    svg = console.export_svg(title="samerun check", theme=MONOKAI, code_format=without_fonts, unique_id="samerun")
    return "\n".join(line.rstrip() for line in svg.splitlines()) + "\n"


if __name__ == "__main__":
    main()

"""Make the reports of docs/gallery.md: what `samerun check` really prints, as a picture and as a page in docs/assets.

    python tools/gallery.py [NAME...]    those of REPORTS; all without

The picture of the first one stands in README.md too. Pictures load no font and run nothing.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import dataclass
from io import StringIO
from pathlib import Path

from rich._export_format import CONSOLE_SVG_FORMAT
from rich.console import Console
from rich.terminal_theme import MONOKAI
from rich.text import Text

ROOT = Path(__file__).resolve().parent.parent
ASSETS = ROOT / "docs/assets"
LATER_SECTIONS = ("\nFirst difference", "\nWhat was varied", "\nThe machine was busy")
"""A picture ends before them: verdict, cause and fix are what a reader looks for."""


@dataclass(frozen=True)
class GalleryReport:
    """What is given to `samerun check`, and the exit code that it must have."""

    words: tuple[str, ...]
    exit_code: int = 1


REPORTS = {
    "digits_cnn_buggy": GalleryReport(("examples/digits_cnn_buggy.py",)),
    "label_set_order": GalleryReport(("tests/zoo/09_label_set_order.py",)),
    "workers": GalleryReport(("--vary", "workers", "tests/zoo/31_worker_count_torch_rng.py")),
    "resume": GalleryReport(
        ("--vary", "resume", "--interrupt", "ZOO_STOP_AT=3 ZOO_CKPT={folder}/c.pt", "--resume",
         "ZOO_RESUME={folder}/c.pt", "tests/zoo/53_resume_no_rng_state.py")
    ),
    "recompute": GalleryReport(("--neutral", "recompute", "tests/programs/neutral/recompute_rng.py")),
    "digits_cnn": GalleryReport(("examples/digits_cnn.py",), exit_code=0),
}  # fmt: skip
"""Name of the files in docs/assets -> the check."""


def main() -> None:
    ASSETS.mkdir(exist_ok=True)
    for name in sys.argv[1:] or REPORTS:
        output = run_check(REPORTS[name], ASSETS / f"{name}.html")
        (ASSETS / f"{name}.svg").write_text(render_as_svg(REPORTS[name], output), encoding="utf-8")


def run_check(report: GalleryReport, page: Path) -> str:
    """What the check prints to a terminal of 80 columns; it writes its page, too."""
    environment = {**os.environ, "FORCE_COLOR": "1", "COLUMNS": "80", "TERM": "xterm-256color"}
    command = [sys.executable, "-m", "samerun", "check", "--html", str(page), *report.words]
    done = subprocess.run(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True)
    if done.returncode != report.exit_code:
        sys.exit(f"{' '.join(report.words)}: exit code {done.returncode}, not {report.exit_code}")
    return done.stdout


def render_as_svg(report: GalleryReport, output: str) -> str:
    """The first sections of a report, as a picture of a terminal."""
    console = Console(record=True, width=80, file=StringIO(), force_terminal=True, highlight=False)
    words = [f'"{word}"' if " " in word else word for word in report.words]
    console.print(Text(f"$ samerun check {' '.join(words)}", style="bold"))
    shown = Text.from_ansi(output)
    for section in LATER_SECTIONS:
        shown = shown.split(section)[0]
    console.print(shown)
    without_fonts = re.sub(r"@font-face \{\{.*?\}\}\n", "", CONSOLE_SVG_FORMAT, flags=re.S)
    svg = console.export_svg(title="samerun check", theme=MONOKAI, code_format=without_fonts, unique_id="samerun")
    return "\n".join(line.rstrip() for line in svg.splitlines()) + "\n"


if __name__ == "__main__":
    main()

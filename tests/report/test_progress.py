"""Progress is one line on a terminal that is redrawn in place, and nothing elsewhere."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import time
from pathlib import Path

import pytest

from samerun.report.progress import describe_run_label

UNSEEDED = "import time, torch\ntime.sleep(0.5)\nmodel = torch.nn.Linear(4, 2)\nprint(model(torch.ones(4)).sum())\n"
REDRAWN = re.compile(r"\r\x1b\[2K")


def in_terminal(words: list[str], cwd: Path, columns: int, seconds: float = 120, **environment: str) -> tuple[int, str]:
    """(exit code, everything written) of `python WORDS` in a terminal of so many columns."""
    pid, terminal = pty.fork()
    if pid == 0:
        fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        os.chdir(cwd)
        mine = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")}
        mine |= {"TERM": "xterm", "NO_COLOR": "1", **environment}
        os.execve(sys.executable, [sys.executable, *words], mine)
    said, end = b"", time.monotonic() + seconds
    while time.monotonic() < end:
        if select.select([terminal], [], [], 1)[0]:
            try:
                part = os.read(terminal, 1 << 16)
            except OSError:  # the other end is closed
                break
            if not part:
                break
            said += part
    else:
        os.kill(pid, 9)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    os.close(terminal)
    return code, said.decode()


def drawn(text: str) -> list[str]:
    """What each redrawing of the line showed."""
    shown = [re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", part) for part in REDRAWN.split(text)]
    return [part for part in shown if part.startswith("  run ")]


@pytest.mark.exhaustive
def test_a_check_keeps_to_one_line(tmp_path: Path) -> None:
    name = "a_program_with_a_name_that_is_longer_than_most_terminals_are_wide_and_then_some_more.py"
    (tmp_path / name).write_text(UNSEEDED)
    code, said = in_terminal(["-m", "samerun", "check", "--vary", "rerun", name], tmp_path, 40)
    progress, _, report = said.partition("DIFFERENT")
    assert code == 1 and report, said
    lines = drawn(progress)
    assert lines and all("\n" not in line.strip("\r\n") and len(line.rstrip()) <= 40 for line in lines), lines
    assert lines[0].startswith("  run 1: running the program ")
    assert any(re.match(r"  run \d: testing cause 1 \(unseeded-… +\d+ s", line) for line in lines), lines
    assert "\x1b[?25l" not in said, "the cursor stays visible"
    assert progress.count("\n") <= 2, "nothing but the line itself is left behind"


COUNT = """
import sys, time
from samerun.report import progress
progress.QUIET_SECONDS = progress.REDRAW_SECONDS = 0.0
with progress.RunProgress(sys.argv[2:] == ["quiet"]) as runs:
    runs("varied-together (hash_seed, listing_order, memory, clock, locale, timezone, address_layout)", 12.3, "running")
with progress.CountProgress(sys.argv[1], sys.argv[2:] == ["quiet"]) as counter:
    counter(1, 3)
    counter(2, 3)
print("after")
with progress.CountProgress("nothing is left of it", False) as counter:
    counter(3, 3)
"""


@pytest.mark.parametrize(
    "columns, shortened", [(40, "varying hash_seed, listin…"), (80, "memory, clock, locale, timezone…")]
)
def test_a_line_is_shown_and_taken_away(columns: int, shortened: str, tmp_path: Path) -> None:
    (tmp_path / "count.py").write_text(COUNT)
    words = ["count.py", "reading receipts of a folder with a long name" * 2]
    code, said = in_terminal(words, tmp_path, columns)
    assert code == 0 and "1 of 3" in said and "2 of 3" in said and "nothing is left" not in said
    assert shortened in said and "12 s" in said, said
    assert said.rstrip().endswith("after") and "\x1b[2K" in said.rpartition("2 of 3")[2], "the line is erased"
    assert max(len(re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", part)) for part in re.split("[\r\n]+", said)) <= columns


def test_no_terminal_sees_no_progress(tmp_path: Path) -> None:
    (tmp_path / "count.py").write_text(COUNT)
    assert in_terminal(["count.py", "reading", "quiet"], tmp_path, 40) == (0, "after\r\n")
    assert in_terminal(["count.py", "reading"], tmp_path, 40, TERM="dumb") == (0, "after\r\n")
    done = subprocess.run([sys.executable, "count.py", "reading"], cwd=tmp_path, capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("after\n", "")


def test_runs_are_described_in_words() -> None:
    described = {
        "control-1": "running the program",
        "control-again": "running it again",
        "varied-together (hash_seed, memory)": "varying hash_seed, memory",
        "varied-batch_split": "varying batch_split",
        "kept-a (values)": "comparing values",
        "pinned-2b~1 (pin:unseeded-python)": "testing cause 2 (unseeded-python)",
        "pinned-clock-2a (pin:time)": "testing a cause (time)",
        "fix-control-1": "running the program, under samerun run",
        "control-2-step7": "step 7 by operator: running it again",
        "a run with a name of its own": "a run with a name of its own",
    }
    assert {label: describe_run_label(label) for label in described} == described

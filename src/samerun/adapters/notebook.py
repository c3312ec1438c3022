"""Notebooks: after ``%load_ext samerun``, ``%%samerun`` checks a cell, and its report is shown below.

A check needs fresh processes, and those do not have the notebook's variables. What the kernel has run is known, though:
the cells that succeeded, in the order in which they ran, and then the checked cell make a program, which computes in
each fresh process what the notebook has computed. No variable is copied or pickled.
"""

from __future__ import annotations

import html
import json
import os
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from samerun.base.errors import SamerunError

NAME = "notebook.py"
USAGE = "%%samerun [--alone] [options of samerun check]"


class CellReport:
    """The report of a checked cell: text in a terminal, a page in a notebook, a record for programs."""

    def __init__(self, record: dict[str, Any], text: str, page: str) -> None:
        self.record, self.text, self.page = record, text, page

    @property
    def verdict(self) -> str:
        """``same``, ``different`` or ``trouble``."""
        return str(self.record["verdict"])

    def __repr__(self) -> str:
        return self.text

    def _repr_html_(self) -> str:
        if not self.page:
            return f"<pre>{html.escape(self.text)}</pre>"
        # In a frame, so that neither style sheet changes the other's page; `sandbox` allows it nothing.
        return (
            f'<iframe sandbox srcdoc="{html.escape(self.page)}" title="samerun: {html.escape(self.verdict)}" '
            'style="width: 100%; height: 32rem; border: 1px solid #8885; border-radius: 6px"></iframe>'
        )


def load_ipython_extension(shell: Any) -> None:
    """What ``%load_ext samerun`` calls."""
    failed: set[int] = set()

    def remember_failed_cell(result: Any) -> None:
        if not result.success:
            failed.add(result.execution_count)

    def samerun(line: str, cell: str) -> CellReport | None:
        return check_cell(shell, line, cell, failed)

    shell.events.register("post_run_cell", remember_failed_cell)
    shell.register_magic_function(samerun, "cell", "samerun")


def check_cell(shell: Any, options_line: str, cell: str, failed_cell_numbers: set[int]) -> CellReport | None:
    """Check a cell behind those that ran before it. None, with a line on standard error, for what cannot be checked.

    `failed_cell_numbers`: numbers of earlier cells that ended in an exception.
    """
    try:
        options = shlex.split(options_line)
        alone = "--alone" in options
        options = [word for word in options if word != "--alone"]
        if options and not options[0].startswith("-"):
            raise SamerunError(f"%%samerun {options[0]}: the cell is the program.", hint=f"Usage: {USAGE}")
        checked = (shell.execution_count, transform_to_plain_python_or_raise(shell, cell))
        before = [] if alone else collect_earlier_cells(shell, failed_cell_numbers)
        return run_check_of_cells([*before, checked], options)
    except (SamerunError, ValueError) as error:
        print(f"samerun: {error}", file=sys.stderr)
        return None


def collect_earlier_cells(shell: Any, failed_cell_numbers: set[int]) -> list[tuple[int, str]]:
    """Number and source of the cells that ran and did not fail, in order, without their magics and shell commands.

    Raises SamerunError for one that cannot be run in a plain Python process.
    """
    found = []
    for number, source in enumerate(shell.user_ns["In"][: shell.execution_count]):
        lines = [line for line in source.splitlines() if not line.lstrip().startswith("get_ipython().")]
        if number not in failed_cell_numbers and any(line.strip() for line in lines):
            found.append((number, transform_to_plain_python_or_raise(shell, "\n".join(lines) + "\n")))
    return found


def transform_to_plain_python_or_raise(shell: Any, cell: str) -> str:
    """The cell, if Python by itself can run it. Raises SamerunError with the reason and what to do."""
    transformed = str(shell.transform_cell(cell))
    if "get_ipython()" in transformed:
        (line, *_) = [line for line in transformed.splitlines() if "get_ipython()" in line]
        raise SamerunError(
            f"this cell uses IPython itself, which a fresh process does not have: {line.strip()[:80]}",
            hint="Put magics and shell commands into a cell of their own.",
        )
    try:
        compile(transformed, NAME, "exec")
    except SyntaxError as error:
        raise SamerunError(
            f"line {error.lineno} of a cell is not plain Python: {error.msg}.",
            hint="A cell with `await` at its top runs in notebooks only; check it as a script with asyncio.run().",
        ) from None
    return transformed


def run_check_of_cells(cells: list[tuple[int, str]], check_options: list[str]) -> CellReport:
    """Check the cells as one program, run where the notebook runs. Raises SamerunError if there is no report."""
    with tempfile.TemporaryDirectory(prefix="samerun-notebook-") as name:
        folder = Path(name)
        program = folder / NAME
        parts = [f"# In [{number}]\n{source.rstrip()}\n" for number, source in cells]
        program.write_text("\n".join(parts), encoding="utf-8")
        record_file, page_file = folder / "report.json", folder / "report.html"
        command = [
            *[sys.executable, "-m", "samerun", "check", "--json", str(record_file), "--html", str(page_file)],
            *[*check_options, str(program)],
        ]
        # Modules beside the notebook are found as in the notebook, though the program lies elsewhere.
        paths = [os.getcwd(), *filter(None, [os.environ.get("PYTHONPATH")])]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, stdin=subprocess.DEVNULL)
        if not record_file.exists():
            raise SamerunError(f"the check made no report: {done.stderr.strip() or done.stdout.strip()}", hint=USAGE)
        record = json.loads(record_file.read_text(encoding="utf-8"))
        page = page_file.read_text(encoding="utf-8") if page_file.exists() else ""
        text = done.stdout.strip() or done.stderr.strip()
        return CellReport(record, text.replace(f"{folder}{os.sep}", ""), page.replace(f"{folder}{os.sep}", ""))

"""Progress of a command: one line on standard error, redrawn in place; nothing if that is not a terminal."""

from __future__ import annotations

import re
import sys
import time
from types import TracebackType
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from rich.progress import Progress as Display

REDRAW_SECONDS = 0.2
QUIET_SECONDS = 2.0
"""A count that is done sooner is not shown."""

RUN_NAMES = (
    (r"control-1", "running the program"),
    (r"control-.*|held-.*", "running it again"),
    (r"varied-together", "varying {vary}"),
    (r"varied-(?P<what>.+)", "varying {what}"),
    (r"pinned-(?P<number>\d+)[a-z]", "testing cause {number} ({vary})"),
    (r"pinned-.*", "testing a cause ({vary})"),
    (r"only-(?P<number>\d+)", "testing line {number} ({vary})"),
    (r"kept-[a-z]", "comparing values"),
    (r"followed.*", "following variables line by line"),
    (r"double", "executing every operator twice"),
    (r"interrupted.*", "interrupting the program"),
    (r"resumed.*", "resuming the program"),
    (r"whole-.*", "keeping the data of a whole run"),
)
"""The purpose of the runs of a check, by their names; other names are shown unchanged."""


def describe_run_label(label: str) -> str:
    """The label of a run, `name (what is varied)`, in words.

    describe_run_label("pinned-1a (pin:unseeded-python)")  # "testing cause 1 (unseeded-python)"
    """
    name, _, vary = label.partition(" (")
    name = re.sub(r"~\d+$", "", name)
    for prefix, when in (("fix-", ", under samerun run"), ("compiled-", ", compiled")):
        if name.startswith(prefix):
            return describe_run_label(label.removeprefix(prefix)) + when
    stepped = re.fullmatch(r"(.+)-step(\d+)", name)
    if stepped:
        return f"step {stepped[2]} by operator: {describe_run_label(label.replace(name, stepped[1], 1))}"
    for pattern, words in RUN_NAMES:
        match = re.fullmatch(pattern, name)
        if match:
            return words.format(vary=vary.rstrip(")").removeprefix("pin:"), **match.groupdict())
    return label


class _ProgressLine:
    """A rich progress display of one line, removed on exit. Created when it is first drawn."""

    def __init__(self, quiet: bool) -> None:
        self._shown = not quiet and sys.stderr.isatty()
        self._display: Display | None = None
        self._next = 0.0

    def __enter__(self) -> _ProgressLine:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.clear()

    def clear(self) -> None:
        """Remove the line before something else is printed."""
        if self._display is not None:
            self._display.stop()
            self._display = None

    def _claim_redraw_if_due(self) -> bool:
        now = time.monotonic()
        if not self._shown or now < self._next:
            return False
        self._next = now + REDRAW_SECONDS
        return True

    def _redraw(self, what: str, amount: str) -> None:
        """`what` is shortened to what the terminal has left beside `amount`."""
        if self._display is None:
            display = _make_display()
            if not display.console.is_interactive:  # TERM=dumb, TTY_COMPATIBLE=0
                self._shown = False
                return
            self._display = display
            self._display.add_task("", amount="")
            self._display.start()
        self._display.update(self._display.task_ids[0], description=what, amount=amount)
        self._display.refresh()


def _make_display() -> Display:
    from rich.progress import Progress as Display
    from rich.progress import TextColumn
    from rich.table import Column

    from samerun.report.terminal import ReportConsole

    # Without a thread of rich: programs are started from this process. The cursor stays visible (Console): a check
    # that is killed with SIGKILL could not bring it back.
    flexible = Column(no_wrap=True, overflow="ellipsis", ratio=1)
    return Display(
        TextColumn("  {task.description}", markup=False, table_column=flexible),
        TextColumn("{task.fields[amount]}", markup=False, style="dim", table_column=Column(no_wrap=True)),
        console=ReportConsole(stderr=True), auto_refresh=False, transient=True, expand=True,
        redirect_stdout=False, redirect_stderr=False,
    )  # fmt: skip


class RunProgress(_ProgressLine):
    """The run in progress. Called by the runner; see samerun.check.execution.runner.Progress."""

    def __init__(self, quiet: bool) -> None:
        super().__init__(quiet)
        self._done = 0

    def __enter__(self) -> RunProgress:
        return self

    def __call__(self, label: str, seconds: float, state: Literal["running", "done"]) -> None:
        if state == "done":
            self._done += 1
        elif self._claim_redraw_if_due():
            self._redraw(f"run {self._done + 1}: {describe_run_label(label)}", f"{seconds:.0f} s")


class CountProgress(_ProgressLine):
    """How many of a known number are done: `2000 of 9000 receipts`."""

    def __init__(self, what: str, quiet: bool) -> None:
        super().__init__(quiet)
        self._what = what
        self._next = time.monotonic() + QUIET_SECONDS

    def __enter__(self) -> CountProgress:
        return self

    def __call__(self, done: int, total: int) -> None:
        if self._claim_redraw_if_due() and (done < total or self._display is not None):  # no news of what is over
            self._redraw(self._what, f"{done} of {total}")

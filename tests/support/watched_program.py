"""Run a program watched, as `samerun check` does, or plainly, and look at what came of it."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from samerun.base.launch import bootstrap_folder
from samerun.record.config import CONFIG_VARIABLE, ROLE_VARIABLE, WatchConfig
from samerun.record.trace import format as f
from samerun.record.trace.run import Event, RunTraces, select_events

TIME_LIMIT = 600


# not frozen: cached_property is, in spirit, the one thing written after the run
@dataclass
class Outcome:
    """What a run left behind."""

    script: Path
    exit_code: int
    stdout: bytes
    stderr: str
    folder: Path

    @cached_property
    def traces(self) -> RunTraces:
        return RunTraces(self.folder)

    def events(self, *kinds: int, role: str = "main", name: str | None = None) -> list[Event]:
        """Events of some kinds (all without any), in order, those of one name only if it is given."""
        found = select_events(self.traces.traces[role], kinds or tuple(f.KIND_NAMES))
        return [event for event in found if name is None or event.name == name]

    def operators(self, name: str = "", role: str = "main") -> list[Event]:
        """Operators whose name begins with `name`, given without its namespace."""
        return [e for e in self.events(f.OPERATOR, role=role) if e.name.startswith(f"aten.{name}")]

    def line(self, mark: str) -> int:
        """Number of the program's line that ends in `# mark`."""
        lines = self.script.read_text(encoding="utf-8").splitlines()
        found = [number for number, line in enumerate(lines, 1) if line.endswith(f"# {mark}")]
        assert len(found) == 1, f"{len(found)} lines are marked {mark!r}"
        return found[0]


def run(
    program: str | Path,
    folder: Path,
    *arguments: str,
    watched: bool = True,
    environment: Mapping[str, str] | None = None,
    before_start: Callable[[], None] | None = None,
    code: int | None = 0,
    **config: Any,
) -> Outcome:
    """Run a script, or the text of one, with `folder` as its working directory.

    `code`: the exit code it must have; None for any. `config`: fields of WatchConfig.
    """
    traces = folder / "traces"
    traces.mkdir(parents=True)
    script = program if isinstance(program, Path) else folder / "program.py"
    if isinstance(program, str):
        script.write_text(textwrap.dedent(program), encoding="utf-8")
    variables = {**os.environ, **(environment or {})}
    variables.pop(ROLE_VARIABLE, None)
    if watched:
        settings = folder / "watch.json"
        settings.write_text(WatchConfig(folder=str(traces), **config).to_json(), encoding="utf-8")
        variables[CONFIG_VARIABLE] = str(settings)
        path = [str(bootstrap_folder()), variables.get("PYTHONPATH", "")]
        variables["PYTHONPATH"] = os.pathsep.join(p for p in path if p)
    done = subprocess.run(
        [sys.executable, str(script), *arguments],
        cwd=folder, env=variables, stdin=subprocess.DEVNULL, capture_output=True, timeout=TIME_LIMIT,
        preexec_fn=before_start,
    )  # fmt: skip
    stderr = done.stderr.decode("utf-8", "replace")
    if code is not None:
        assert done.returncode == code, f"exit code {done.returncode}\n{stderr}"
    return Outcome(script, done.returncode, done.stdout, stderr, traces)

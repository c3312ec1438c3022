"""Measure a program under several settings in turns: time and memory in all, and operator by operator."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any, Literal

from samerun.base.errors import SamerunError
from samerun.base.launch import prepend_bootstrap_to_pythonpath
from samerun.base.records import MEASURED, STOPPED, CostReport, MedianAndRange, OperatorCost, Setting
from samerun.base.target import Target, suggest_running_without_samerun
from samerun.check.execution import processes
from samerun.record.watching.cost_meter import VARIABLE

PLAIN = "plain"
Progress = Callable[[str, float, Literal["running", "done"]], None]


@dataclass(frozen=True)
class MeasuredRun:
    """One run. `failure` is "" where it ended well."""

    wall: float
    parts: tuple[dict[str, Any], ...]
    failure: str

    @property
    def steps(self) -> int:
        return max((max(part["steps"], 0) for part in self.parts), default=0)

    def max_over_processes(self, quantity: Literal["cpu_seconds", "peak_bytes", "device_peak_bytes"]) -> float:
        """Of the process that has waited for the others, which counts them in."""
        return float(max((part[quantity] for part in self.parts), default=0))

    def longest_seconds_per_step(self, clock: Literal["wall", "cpu"]) -> float | None:
        """Seconds of a step, by the wall clock or of the processor; None with fewer than two steps."""
        column = 0 if clock == "wall" else 1
        found = [(p["ends"][1][column] - p["ends"][0][column]) / (p["steps"] - 1) for p in self.parts if p["steps"] > 1]
        return max(found) if found else None


@dataclass
class CostMeasurement:
    """`settings`: names, each with the variables that put it in force; the first one is the program as it is."""

    target: Target
    folder: Path
    settings: Mapping[str, Mapping[str, str]]
    repeat: int
    max_steps: int | None
    time_limit: float | None
    progress: Progress
    whole: dict[str, list[MeasuredRun]] = field(default_factory=dict)
    by_operator: dict[str, list[MeasuredRun]] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)

    def measure_whole_runs_then_operators(self) -> CostReport:
        """Measure whole runs first, then runs with a clock around every operator, which slows them (decision 28).

        Raises SamerunError when the program does not end well as it is.
        """
        for kept, operators in ((self.whole, False), (self.by_operator, True)):
            for number in range(1, self.repeat + 1):
                for name in self.settings:
                    if name in self.failed:
                        continue
                    run = self._run_under_setting(
                        name, operators, f"{name}-{'operators-' if operators else ''}{number}"
                    )
                    if run.failure and name == PLAIN:
                        raise SamerunError(
                            f"The program as it is {run.failure}.",
                            hint=suggest_running_without_samerun(self.target.command, self.target.shown),
                        )
                    if run.failure:
                        self.failed[name] = run.failure
                    kept.setdefault(name, []).append(run)
        return CostReport(
            self.target.shown,
            self.repeat,
            tuple(self._summarize_setting(name) for name in self.settings),
            self._list_median_operator_costs_per_setting_by_seconds(),
        )

    def _run_under_setting(self, setting_name: str, time_operators: bool, run_label: str) -> MeasuredRun:
        folder = self.folder / run_label
        folder.mkdir()
        asked = folder / "asked.json"
        asked.write_text(json.dumps({"operators": time_operators, "max_steps": self.max_steps}), encoding="utf-8")
        environment = prepend_bootstrap_to_pythonpath(
            {**os.environ, **self.settings[setting_name], VARIABLE: str(asked)}
        )
        begin = time.monotonic()
        timed_out = False
        with open(folder / "stdout", "wb") as out, open(folder / "stderr", "wb") as err:
            process = processes.start_in_new_session(self.target.command, environment, out, err, os.getcwd())
            try:
                timed_out = processes.wait_and_return_whether_timed_out(
                    process, self.time_limit, lambda now: self.progress(run_label, now, "running")
                )
                wall = time.monotonic() - begin
            finally:
                processes.kill_process_tree(process, str(asked), VARIABLE)
        self.progress(run_label, wall, "done")
        parts = tuple(json.loads(path.read_text(encoding="utf-8")) for path in sorted(folder.glob("*.cost")))
        failure = ""
        if timed_out:
            failure = f"was still running after {wall:.0f} s (--time-limit) and was ended"
        elif process.returncode:
            said = next((part["stopped"] for part in parts if part["stopped"]), "") or read_last_nonblank_line(
                folder / "stderr"
            )
            failure = f"ended with exit code {process.returncode}" + (f": {said}" if said else "")
        elif not parts:
            failure = "ran, but not in a Python that has samerun"
        return MeasuredRun(wall, parts, failure)

    def _summarize_setting(self, name: str) -> Setting:
        if name in self.failed:
            return Setting(name, STOPPED, self.failed[name])
        runs = self.whole[name]
        return Setting(
            name, MEASURED, "", runs[0].steps,
            wall=median_and_range([run.wall for run in runs]),
            cpu=median_and_range([run.max_over_processes("cpu_seconds") for run in runs]),
            step=median_and_range([s for run in runs if (s := run.longest_seconds_per_step("wall")) is not None]),
            step_cpu=median_and_range([s for run in runs if (s := run.longest_seconds_per_step("cpu")) is not None]),
            peak=median_and_range([run.max_over_processes("peak_bytes") for run in runs]),
            device_peak=median_and_range([n for run in runs if (n := run.max_over_processes("device_peak_bytes"))]),
        )  # fmt: skip

    def _list_median_operator_costs_per_setting_by_seconds(
        self,
    ) -> tuple[tuple[str, tuple[OperatorCost | None, ...]], ...]:
        """Those that take most under any setting come first; equal ones by name."""
        columns = [compute_median_operator_costs(self.by_operator.get(name, ())) for name in self.settings]
        rows = [(name, tuple(column.get(name) for column in columns)) for name in sorted(set().union(*columns))]
        rows.sort(key=lambda row: (-max(cost.seconds for cost in row[1] if cost is not None), row[0]))
        return tuple(rows)


def compute_median_operator_costs(runs: Sequence[MeasuredRun]) -> dict[str, OperatorCost]:
    """Medians of the runs; what several processes of a run did is added up."""
    found: dict[str, list[list[float]]] = {}
    for run in runs:
        total: dict[str, list[float]] = {}
        for part in run.parts:
            for name, numbers in part["operators"].items():
                total[name] = [a + b for a, b in zip(total.get(name, (0, 0, 0)), numbers, strict=True)]
        for name, numbers in total.items():
            found.setdefault(name, []).append(numbers)
    return {
        name: OperatorCost(int(median(n[0] for n in each)), median(n[1] for n in each), median(n[2] for n in each))
        for name, each in found.items()
    }


def median_and_range(values: Sequence[float]) -> MedianAndRange | None:
    return MedianAndRange(median(values), min(values), max(values)) if values else None


def read_last_nonblank_line(path: Path) -> str:
    """The last line that says something of what a program wrote."""
    lines = processes.read_file_tail(path).split("\n")
    return next((line.strip() for line in reversed(lines) if line.strip()), "")

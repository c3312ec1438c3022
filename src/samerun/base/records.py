"""The results of `samerun check` and `samerun cost` as plain values: made by `check`, shown by `report`."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, Final, Literal

SCHEMA = 1
ALREADY = "the program already differs on a plain rerun"
"""Why a variation was skipped, where that is so."""
Verdict = Literal["same", "different", "trouble"]
VariationOutcome = Literal["same", "different", "skipped", "trouble"]
SAME: Final = "same"
DIFFERENT: Final = "different"
TROUBLE: Final = "trouble"
EXIT_CODES: dict[Verdict, int] = {SAME: 0, DIFFERENT: 1, TROUBLE: 2}


@dataclass(frozen=True)
class Outcome:
    """What became of one variation: same, different, skipped or trouble."""

    name: str
    outcome: VariationOutcome
    detail: str


@dataclass(frozen=True)
class RunRecord:
    """One run of the user's program."""

    id: str
    vary: tuple[str, ...]
    exit_code: int
    steps: int
    events: int
    seconds: float
    receipt: str | None


@dataclass(frozen=True)
class FirstDifference:
    """Where two runs part. `file` is relative to the working directory where possible."""

    variation: str
    event: int
    step: int
    phase: str
    module: str
    operator: str
    file: str
    line: int
    inputs: str
    elements_different: int | None = None
    elements: int | None = None
    max_abs: float | None = None
    max_ulp: int | None = None


@dataclass(frozen=True)
class FoundCause:
    """Why. `certain` only when an experiment confirmed it."""

    kind: str
    file: str
    line: int
    evidence: tuple[str, ...]
    certain: bool


@dataclass(frozen=True)
class Fix:
    """What to change."""

    summary: str
    patch: str | None
    doc: str


@dataclass(frozen=True)
class Growth:
    """How far the parameters are apart after one step, and the losses of both runs where they are known.

    `elements`: how many were compared, of `parameters`. `relative`: the norm of the difference over the norm of
    the first run's values; None where one of them is not finite.
    """

    step: int
    elements_different: int
    elements: int
    parameters: int
    max_abs: float | None
    max_ulp: int | None
    relative: float | None
    losses: tuple[float, float] | None


@dataclass(frozen=True)
class Divergence:
    """How a difference grows. `steps`: how many were compared.

    `different`: first and last of each stretch of steps that differ, from 1. `leaves`: what differs, and from
    which step on. `end`: whether the models are "same" or "different" in the end, or "unknown".
    """

    steps: int
    different: tuple[tuple[int, int], ...]
    leaves: tuple[tuple[str, int], ...]
    end: str
    growth: tuple[Growth, ...] = ()
    """At some of the steps, in order; empty where it was not measured."""


@dataclass(frozen=True)
class Hazard:
    """One of several causes. `variation`: what it shows under. `ignored`: it was found, and is not counted.

    `mended`: whether it is gone when samerun holds the run still; None where that was not asked or is not known.
    """

    kind: str
    file: str
    line: int
    evidence: tuple[str, ...]
    certain: bool
    variation: str
    fix: Fix | None = None
    ignored: bool = False
    mended: bool | None = None


@dataclass(frozen=True)
class WithSamerun:
    """What became of the program under what `samerun run` does.

    `verdict`: same, different, or trouble where it fails then. `left`: hazards that are still there.
    """

    verdict: Verdict
    seed: int
    detail: str
    left: tuple[Hazard, ...] = ()


@dataclass(frozen=True)
class Compilation:
    """With `--eager`: the verdicts with compilation off and, where anything is compiled, as the program is.

    `regions`: file and line of each call that compiles. `reported`: which of the two the report is about.
    """

    eager: Verdict
    compiled: Verdict | None
    regions: tuple[tuple[str, int], ...]
    reported: Literal["eager", "compiled"]


NeutralOutcome = Literal["same", "rounding", "wrong", "unaligned", "skipped"]


@dataclass(frozen=True)
class NeutralPoint:
    """After a step: how far the sides are apart, and A from A disturbed by one ulp, relative to the values of A."""

    step: int
    apart: float
    disturbed: float | None


@dataclass(frozen=True)
class NeutralResult:
    """What a switch that should change nothing does change.

    step: the first that is wrong, else the first that differs; 0 if none does. error_a_ulp, error_b_ulp: how far the
    value that tells the most in this step (`value`) is from that of side A in float64, norm by norm, in ulp of its
    dtype. growth: whether the whole run stays in the envelope of runs disturbed by one ulp; None where nothing differs.
    """

    name: str
    outcome: NeutralOutcome
    detail: str
    operator: str = ""
    file: str = ""
    line: int = 0
    step: int = 0
    value: str = ""
    error_a_ulp: float | None = None
    error_b_ulp: float | None = None
    growth: Literal["inside", "outside"] | None = None
    points: tuple[NeutralPoint, ...] = ()


@dataclass(frozen=True)
class CheckReport:
    """The answer of `samerun check`. `notes` are for people; they are part of the JSON too."""

    verdict: Verdict
    command: tuple[str, ...]
    variations: tuple[Outcome, ...] = ()
    runs: tuple[RunRecord, ...] = ()
    first_difference: FirstDifference | None = None
    cause: FoundCause | None = None
    fix: Fix | None = None
    notes: tuple[str, ...] = ()
    others: tuple[FoundCause, ...] = field(default=())
    """Other hazards that were seen on the way."""
    spread: Divergence | None = None
    causes: tuple[Hazard, ...] = ()
    """`cause` first; with `--fix on` every one that was found, with `--ignore` those that are ignored too."""
    with_samerun: WithSamerun | None = None
    """With `--fix on`, for a program that differs."""
    compilation: Compilation | None = None
    """With `--eager`."""
    neutral: tuple[NeutralResult, ...] | None = None
    """With `--neutral`: a result for each switch."""

    @property
    def exit_code(self) -> int:
        return EXIT_CODES[self.verdict]

    def to_dict(self, samerun_version: str) -> dict[str, Any]:
        """The JSON of schema 1."""
        return {"schema": SCHEMA, "samerun": samerun_version, **asdict(self)}


# --- what a program costs under each setting
SCHEMA = 1
MEASURED, STOPPED = "measured", "stopped"


@dataclass(frozen=True)
class MedianAndRange:
    """The median of several runs, with the least and the most."""

    median: float
    least: float
    most: float


@dataclass(frozen=True)
class Setting:
    """One column. `outcome`: measured, or stopped where the program does not run like this; `detail` says why.

    Of the whole program: seconds by the wall clock and of the processor, and the peak of memory in bytes. Of an
    optimizer step: seconds between the end of the first and of the last, by their number; None with fewer than two.
    `device_peak`: of torch's allocator; None without a device.
    """

    name: str
    outcome: str
    detail: str
    steps: int = 0
    wall: MedianAndRange | None = None
    cpu: MedianAndRange | None = None
    step: MedianAndRange | None = None
    step_cpu: MedianAndRange | None = None
    peak: MedianAndRange | None = None
    device_peak: MedianAndRange | None = None


@dataclass(frozen=True)
class OperatorCost:
    """One operator under one setting: calls, seconds, and bytes by which it raised the peak; medians of the runs."""

    calls: int
    seconds: float
    peak_bytes: float


@dataclass(frozen=True)
class CostReport:
    """The answer of `samerun cost`. `operators`: name, then what it costs under each setting, in their order."""

    command: tuple[str, ...]
    repeat: int
    settings: tuple[Setting, ...]
    operators: tuple[tuple[str, tuple[OperatorCost | None, ...]], ...]

    @property
    def exit_code(self) -> int:
        """0: every setting was measured. 1: the program does not run under one of them."""
        return int(any(one.outcome != MEASURED for one in self.settings))

    def to_dict(self, samerun_version: str, machine: dict[str, Any]) -> dict[str, Any]:
        """The JSON of schema 1."""
        operators = [
            {"operator": name, **{s.name: asdict(c) if c else None for s, c in zip(self.settings, costs, strict=True)}}
            for name, costs in self.operators
        ]
        return {
            "schema": SCHEMA,
            "samerun": samerun_version,
            "command": list(self.command),
            "repeat": self.repeat,
            "settings": [asdict(one) for one in self.settings],
            "operators": operators,
            "machine": machine,
        }


# --- what stands in source files
@dataclass(frozen=True, kw_only=True)
class LintFinding:
    """One hazard in a source. Lines from 1, columns from 1 in characters; in a notebook, lines of the cell `cell`.

    `cause`: the kind of cause of `samerun check` that it leads to. `confirmed`: with `--confirm`, whether an
    experiment showed it.
    """

    file: str
    line: int
    column: int
    end_line: int
    end_column: int
    code: str
    name: str
    message: str
    cause: str
    fix: str
    fixable: bool
    cell: int | None = None
    confirmed: Literal["proven", "dropped", "untested"] | None = None


@dataclass(frozen=True)
class LintProblem:
    """A file that could not be looked at, and why."""

    file: str
    message: str


@dataclass(frozen=True)
class LintReport:
    """The answer of `samerun lint`. `fixed`: how many findings were mended in place."""

    files: int
    findings: tuple[LintFinding, ...]
    problems: tuple[LintProblem, ...] = ()
    fixed: int = 0

    @property
    def exit_code(self) -> int:
        """0: clean. 1: findings that no experiment dropped. 2: a file could not be looked at."""
        if self.problems:
            return 2
        return int(any(one.confirmed != "dropped" for one in self.findings))

    def to_dict(self, samerun_version: str) -> dict[str, Any]:
        """The JSON of schema 1."""
        return {"schema": 1, "samerun": samerun_version, **asdict(self)}

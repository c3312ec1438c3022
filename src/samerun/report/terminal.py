"""The console that reports are printed to, and the report of a check on it: verdict, cause, fix, then the evidence."""

from __future__ import annotations

import linecache
import re
from collections.abc import Iterable, Sequence

from rich.console import Console, ConsoleOptions, Group, RenderableType
from rich.padding import Padding
from rich.segment import Segment, Segments
from rich.style import Style
from rich.table import Table
from rich.text import Text

from samerun.base.records import (
    ALREADY,
    DIFFERENT,
    SAME,
    CheckReport,
    Divergence,
    FirstDifference,
    Growth,
    NeutralResult,
)
from samerun.base.text import escape_and_truncate_for_terminal, escape_as_one_line


class ReportConsole(Console):
    """Standard output or standard error, without rich's automatic highlighting."""

    def __init__(self, *, stderr: bool = False) -> None:
        super().__init__(highlight=False, stderr=stderr)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Escape control characters: every text of a report passes here, names from the user's program included."""
        for segment in super().render(renderable, options):
            text = segment.text if segment.control else escape_and_truncate_for_terminal(segment.text)
            yield segment if text == segment.text else Segment(text, segment.style)

    def on_broken_pipe(self) -> None:
        """rich would end with exit code 1, which says "different"; the command line knows what trouble is."""
        raise BrokenPipeError

    def show_cursor(self, show: bool = True) -> bool:
        """Leaves the cursor alone: what is killed while it is hidden leaves a terminal without one."""
        return False


# --- the report of a check
INDENT = 2
CONTEXT = 2
STATE_NAMES = {"params": "parameters", "grads": "gradients"}
"""Names of states in traces that people call something else."""
MARKS = {"same": ("=", "green"), "different": ("x", "red"), "skipped": ("-", "dim"), "trouble": ("!", "yellow")}


def show_check_report(report: CheckReport, console: Console) -> None:
    """Print the report; reads well in 80 columns."""
    console.print(make_verdict_line(report))
    if report.neutral is not None:
        console.print()
        console.print(Padding(make_neutral_section(report.neutral), (0, 0, 0, INDENT), expand=False))
    if report.verdict == DIFFERENT:
        fixed = make_fix_section(report)
        for part in (
            make_cause_section(report),
            fixed,
            make_hazard_section_if_fix_on(report),
            make_first_difference_section(report),
            make_growth_section(report),
        ):
            if part is not None:
                console.print()
                console.print(part)
            if part is not None and part is fixed:
                show_patch(report, console)
    if report.neutral is None:
        console.print()
        if report.verdict == DIFFERENT:
            console.print(Text("What was varied", style="bold"))
        console.print(Padding(make_variation_table(report), (0, 0, 0, INDENT), expand=False))
    for note in report.notes:
        console.print()
        console.print(Text(note, style="yellow"))


def make_verdict_line(report: CheckReport) -> Text:
    command = " ".join(report.command)
    if report.verdict == SAME:
        steps = report.runs[0].steps if report.runs else 0
        events = report.runs[0].events if report.runs else 0
        text = Text("SAME", style="bold green")
        text.append(f"  {command}", style="default not bold")
        done = f"{steps} optimizer steps, " if steps else ""
        what, twice = "every value in", "every operator executed twice"
        if any(one.ignored for one in report.causes):
            text.append("  but for what is ignored", style="bold yellow")
            what, twice = "every other value, after", f"{twice}, after what is ignored"
        if report.neutral is not None:
            text.append("\n      nothing changes but the rounding", style="dim not bold")
            return text
        if is_double_execution_report(report):
            text.append(f"\n      {twice}: {done}{events} events", style="dim not bold")
            return text
        text.append(f"\n      {what} {len(report.runs)} runs: {done}{events} events each", style="dim not bold")
        return text
    text = Text("DIFFERENT" if report.verdict == DIFFERENT else "TROUBLE", style="bold red")
    text.append(f"  {command}", style="default not bold")
    return text


def is_double_execution_report(report: CheckReport) -> bool:
    """Whether it is the report of `--double`: one run with every operator executed twice."""
    return any(outcome.name == "double" for outcome in report.variations)


def make_variation_table(report: CheckReport) -> Table:
    table = Table.grid(padding=(0, 2))
    skipped = [o for o in report.variations if o.outcome == "skipped" and ALREADY in o.detail]
    together = len(skipped) > 1 and report.verdict == DIFFERENT
    for outcome in report.variations:
        if together and outcome in skipped:
            continue
        mark, style = MARKS.get(outcome.outcome, ("?", "dim"))
        table.add_row(
            Text(mark, style=style), outcome.name, Text(outcome.outcome, style=style), Text(outcome.detail, style="dim")
        )
    if together:
        names = f"{ALREADY}: " + ", ".join(o.name for o in skipped)
        table.add_row(Text("-", style="dim"), Text("skipped", style="dim"), "", Text(names, style="dim"))
    return table


NEUTRAL_MARKS = {
    "same": ("=", "green"), "rounding": ("~", "green"), "wrong": ("x", "red"), "unaligned": ("!", "yellow"),
    "skipped": ("-", "dim"),
}  # fmt: skip


def make_neutral_section(results: tuple[NeutralResult, ...]) -> Group:
    """With --neutral: a line for each switch, what it means below it, and the source where it is wrong."""
    parts: list[RenderableType] = []
    for result in results:
        mark, style = NEUTRAL_MARKS[result.outcome]
        head = Text.assemble((f"{mark} ", style), result.name, "  ", (result.outcome, f"bold {style}"))
        parts.append(head)
        for text in (*result.detail.split("; "), *describe_neutral_divergence(result)):
            parts.append(Padding(Text(text, style="dim"), (0, 0, 0, 2 * INDENT), expand=False))
        if result.outcome == "wrong" and result.file:
            parts.append(Padding(make_source_excerpt(result.file, result.line, CONTEXT), (0, 0, 0, 2 * INDENT)))
    return Group(*parts)


def describe_neutral_divergence(result: NeutralResult) -> list[str]:
    """Where the sides part and how far they are from float64, in words: one line of text each."""
    lines = []
    if result.step:
        lines.append(f"{'wrong' if result.outcome == 'wrong' else 'differs'} from step {result.step} on")
    if result.outcome == "rounding" and result.line:
        lines.append(f"first at {result.file}:{result.line} ({result.operator})")
    if result.error_a_ulp is not None and result.error_b_ulp is not None:
        errors = f"{result.error_a_ulp:.3g} ulp on side A, {result.error_b_ulp:.3g} ulp on side B"
        lines.append(f"{result.value} in float64 is {errors} away")
    if result.growth is not None:
        verb = "stays in" if result.growth == "inside" else "leaves"
        lines.append(f"the whole run {verb} the envelope of side A disturbed by one ulp")
    return lines


def make_first_difference_section(report: CheckReport) -> Group | None:
    first = report.first_difference
    if first is None:
        return None
    head = Text("First difference", style="bold")
    lines: list[Text | Padding] = [head]
    at = [first.operator]
    if first.module:
        at.append(f"in {first.module}")
    if first.phase in ("forward", "backward", "optimizer"):
        at.append(f"({first.phase}, step {first.step})")
    elif first.step:
        at.append(f"(step {first.step})")
    if first.process not in ("", "main"):
        at.append(f"in {describe_processes(first.process, first.also_in)}")
    lines.append(Padding(Text(" ".join(at)), (0, 0, 0, INDENT), expand=False))
    if first.file or first.elements is not None:  # an exit code or a printed line has no inputs
        lines.append(Padding(Text(describe_value_difference_and_inputs(first)), (0, 0, 0, INDENT), expand=False))
    same_place = report.cause is not None and (report.cause.file, report.cause.line) == (first.file, first.line)
    if first.file and not same_place:
        lines.append(Padding(make_source_excerpt(first.file, first.line, 0), (0, 0, 0, INDENT), expand=False))
    return Group(*lines)


MOST_PROCESSES = 8


def describe_processes(process: str, also_in: Sequence[str]) -> str:
    """Where a difference is first, with the ranks where another one is as early."""
    if not also_in:
        return process
    more = len(also_in) - MOST_PROCESSES
    named = ", ".join(also_in[:MOST_PROCESSES]) + (f" and {more} more" if more > 0 else "")
    return f"{process}; before any collective tells of it also in {named}"


def describe_value_difference_and_inputs(first: FirstDifference) -> str:
    """How far the values differ, in words."""
    parts = []
    if first.elements_different is not None and first.elements is not None:
        plural = "" if first.elements == 1 else "s"
        verb = "differs" if first.elements_different == 1 else "differ"
        parts.append(f"{first.elements_different} of {first.elements} element{plural} {verb}")
        if first.max_abs is not None:
            parts.append(f"by up to {first.max_abs:.3g}")
        if first.max_ulp is not None:
            parts.append(f"({describe_ulp(first.max_ulp)})")
    inputs = {
        "same": "its inputs are the same",
        "different": "an input differs" if first.variation == "double" else "its inputs differ already",
        "none": "it has no tensor inputs",
    }[first.inputs]
    return " ".join(parts) + ("; " if parts else "") + inputs


def make_cause_section(report: CheckReport) -> Group | None:
    cause = report.cause
    if cause is None:
        return None
    head = Text("Cause", style="bold") if cause.certain else Text("Suspect", style="bold yellow")
    head.append(f"  {cause.kind}", style="bold red")
    how = "confirmed by experiment" if cause.certain else "not confirmed by an experiment"
    head.append(f"  {how}", style="dim not bold")
    lines: list[Text | Padding] = [head]
    if cause.file:
        lines.append(Padding(make_source_excerpt(cause.file, cause.line, CONTEXT), (0, 0, 0, INDENT), expand=False))
    lines.extend(Padding(Text(f"- {each}"), (0, 0, 0, INDENT), expand=False) for each in cause.evidence)
    for other in report.others if is_double_execution_report(report) else report.others[:3]:
        text = f"also seen: {other.kind} at {other.file}:{other.line}"
        if other.certain:
            text += f" ({other.evidence[-1]})"
        lines.append(Padding(Text(text, style="dim"), (0, 0, 0, INDENT), expand=False))
    return Group(*lines)


def make_growth_section(report: CheckReport) -> Text | None:
    """How the difference grows: which steps, what in them, and the end."""
    if report.spread is None:
        return None
    return Text("\n".join(describe_divergence(report.spread)))


def describe_divergence(divergence: Divergence) -> list[str]:
    """Which steps and states differ, in words: one line of text each."""
    if not divergence.different:
        lines = [f"None of the {divergence.steps} optimizer steps differ"]
    else:
        stretches = [str(a) if a == b else f"{a}-{b}" for a, b in divergence.different]
        ranges = ", ".join(stretches[:4]) + (f" and {len(stretches) - 4} more stretches" if len(stretches) > 4 else "")
        count = sum(b - a + 1 for a, b in divergence.different)
        lines = [f"{count} of {divergence.steps} optimizer steps differ ({ranges})"]
        if divergence.different[-1][1] < divergence.steps:
            lines[0] += "; later ones are the same again"
    if divergence.leaves:
        named = (f"{STATE_NAMES.get(name, name)} {step}" for name, step in divergence.leaves[:6])
        lines.append("First differing step per state: " + ", ".join(named))
    lines += describe_growth(divergence)
    if divergence.end != "unknown":
        lines.append(f"The model at the end is {'the same' if divergence.end == 'same' else 'different'}")
    return lines


def describe_growth(divergence: Divergence) -> list[str]:
    """How far apart the parameters are at first and at last, whether that grows, and the losses."""
    points = [point for point in divergence.growth if point.elements_different]
    lines = []
    if points:
        first, last = points[0], points[-1]
        lines.append("Parameters: " + "; ".join(describe_growth_point(point) for point in dict.fromkeys((first, last))))
        if first.elements < first.parameters:
            lines[0] += f" (a sample of {first.parameters} parameters)"
        if first.relative and last.relative and last is not first:
            ratio, steps = last.relative / first.relative, last.step - first.step
            how = "grows" if ratio > 1.5 else "shrinks" if ratio < 1 / 1.5 else "stays about as large"
            by = f" by a factor of {ratio if ratio > 1 else 1 / ratio:.3g}" if how != "stays about as large" else ""
            lines.append(f"The difference {how}{by} over {steps} step{'s' if steps > 1 else ''}")
        if divergence.growth[-1].step > last.step:
            lines.append(f"After step {divergence.growth[-1].step} the parameters are the same again")
    told = [point for point in divergence.growth if point.losses is not None]
    if told and told[-1].losses is not None:
        a, b = told[-1].losses
        text = f"Loss at step {told[-1].step}: {a:.9g}"
        lines.append(text + (" in both runs" if a == b else f" and {b:.9g}"))
        if a != b and a:
            lines[-1] += f", {format_percent(abs(b - a) / abs(a))} apart"
    return lines


def format_percent(share: float) -> str:
    """A share as people read it: 0.041 is "4.1 %"."""
    return f"{100 * share:.2g} %" if share < 0.995 else f"{100 * share:.0f} %"


def describe_ulp(ulp: int) -> str:
    """A distance in units in the last place; beyond a million the figure tells nobody anything."""
    return f"{ulp} ulp" if ulp < 10**6 else "more than a million ulp"


def describe_growth_point(point: Growth) -> str:
    """How many parameters differ after a step, and how far."""
    text = f"after step {point.step}, {point.elements_different} of {point.elements} differ"
    if point.max_ulp is not None:
        text += f", by {'up to ' if point.max_ulp < 10**6 else ''}{describe_ulp(point.max_ulp)}"
    return text + (f", relative {point.relative:.2g}" if point.relative is not None else "")


def make_fix_section(report: CheckReport) -> Group | None:
    if report.fix is None:
        return None
    lines: list[Text | Padding] = [Text("Fix", style="bold green")]
    lines.append(Padding(Text(report.fix.summary), (0, 0, 0, INDENT), expand=False))
    return Group(*lines)


def show_patch(report: CheckReport, console: Console) -> None:
    """Print the patch so that `git apply` and `patch -p1` accept it: not indented, not wrapped, tabs kept."""
    if report.fix is not None and report.fix.patch:
        lines = (f"{escape_patch_line(line)}\n" for line in report.fix.patch.removesuffix("\n").split("\n"))
        console.print(Segments([Segment("".join(lines), Style(color="cyan"))]), soft_wrap=True, end="")


def escape_patch_line(line: str) -> str:
    """A line of source code with its tabs and its line ending, other control characters written out."""
    return re.sub(r"[^\t\r]+|\r(?!$)", lambda part: escape_as_one_line(part[0], len(part[0])), line)


def make_hazard_section_if_fix_on(report: CheckReport) -> Group | None:
    """With --fix on: all hazards, that of the first difference first, and whether `samerun run` mends them."""
    counted = [one for one in report.causes if not one.ignored]
    if report.with_samerun is None:
        return None
    table = Table.grid(padding=(0, 2))
    known = {(one.kind, one.file, one.line) for one in counted}
    more = [one for one in report.with_samerun.left if (one.kind, one.file, one.line) not in known]
    for one in (*counted, *more):
        mended = False if one in more else one.mended
        told = {True: "samerun run mends it", False: "is left", None: "not known"}[mended]
        mark, style = ("=", "green") if mended else ("x", "red") if mended is False else ("?", "yellow")
        place = f"{one.file}:{one.line}" if one.file else ""
        table.add_row(Text(mark, style=style), one.kind, Text(place, style="cyan"), Text(told, style=style))
    return Group(Text("Every hazard, with and without samerun", style="bold"), Padding(table, (0, 0, 0, INDENT)))


def make_source_excerpt(file: str, line: int, context_lines: int) -> Text:
    """A line of a file with its neighbours."""
    linecache.checkcache(file)
    text = Text(f"{file}:{line}", style="cyan", no_wrap=True, overflow="ellipsis")
    for number in range(max(1, line - context_lines), line + context_lines + 1):
        source = linecache.getline(file, number).rstrip("\n")
        if not source and number != line:
            continue
        here = number == line
        text.append(f"\n{'>' if here else ' '} {number:4} ", style="bold red" if here else "dim")
        text.append("| ", style="dim")
        text.append(source.expandtabs(4), style="bold" if here else "dim")
    return text

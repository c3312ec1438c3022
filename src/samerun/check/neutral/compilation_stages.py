"""If compiled regions are not neutral: which stage of compilation, and which node of a region, makes the difference?

First a run that looks into the regions (`record.watching.compiled_graphs`); where it finds nothing, the backends of
torch.compile that stop after a stage tell how far the fault goes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from samerun.base.records import CompiledRegion
from samerun.check.neutral import rounding_verdict
from samerun.check.neutral.difference_explanation import explain_difference
from samerun.check.neutral.run_numbers import RunNumbers
from samerun.check.neutral.value_correspondence import Culprit
from samerun.record.config import REGIONS_INSPECTED, REGIONS_INSPECTED_CLOSELY
from samerun.record.region_finding import STAGE_BACKENDS, STAGE_TEXTS, RegionFinding

RunInFloat64 = Callable[[str], RunNumbers | None]
"""Runs side B in float64 with another backend; None if that run fails."""
Inspect = Callable[[str], RegionFinding | None]
"""Runs side B with its regions looked into, in the way that the setting says."""


def explain_compiled_difference(
    told: Culprit | None, numbers_of_a_b_and_a64: tuple[RunNumbers, RunNumbers, RunNumbers], step: int,
    run_b_inspecting_regions: Inspect, run_b_in_float64_with_backend: RunInFloat64,
) -> tuple[Culprit, CompiledRegion]:  # fmt: skip
    """What makes the difference, and where in the compiled region. numbers_of_a_b_and_a64: A, B, and A in float64."""
    told = told or Culprit("", "", 0, "")
    if " draws " in told.why:
        return replace(told, why=f"random numbers: {told.why}"), CompiledRegion(stage="random numbers")
    finding = run_b_inspecting_regions(REGIONS_INSPECTED)
    if finding is not None and finding.node:
        return region_finding_to_culprit_and_region(told, finding)
    for backend, stage in STAGE_BACKENDS:
        made = run_b_in_float64_with_backend(backend)
        if (
            made is not None
            and rounding_verdict.judge_runs_up_to_first_fault(*numbers_of_a_b_and_a64, made, None, True).verdict
            == "wrong"
        ):
            seen = explain_difference(None, None, numbers_of_a_b_and_a64[2], made, step) or told
            why = f"{STAGE_TEXTS[stage]} (backend {backend}) makes the difference"
            if stage == "capture" or finding is not None:
                return replace(seen, why=why), CompiledRegion(stage=stage)
            told = replace(seen, why=why)
            break
    else:
        told, stage = replace(told, why="the last stage, lowering by the program's own backend, does"), "lowering"
    finding = finding or run_b_inspecting_regions(REGIONS_INSPECTED_CLOSELY)
    if finding is not None:
        if finding.node:
            return region_finding_to_culprit_and_region(told, finding)
        why = f"{told.why}; the region of {finding.node_count} nodes: {finding.value}; {finding.note}"
        return replace(told, file=finding.file, line=finding.line, why=why.removesuffix("; ")), CompiledRegion(
            stage=stage
        )
    return told, CompiledRegion(stage=stage)


def region_finding_to_culprit_and_region(told: Culprit, finding: RegionFinding) -> tuple[Culprit, CompiledRegion]:
    parts = [f"node {finding.node} ({finding.operator}) of a compiled region: {finding.value}"]
    if finding.others:
        most = ", ".join(finding.others[-4:])
        parts.append(f"only together with {most}" + (" and others" if len(finding.others) > 4 else ""))
    if finding.stage is not None:
        parts.append(STAGE_TEXTS[finding.stage] + (f": {finding.subsystem}" if finding.subsystem else ""))
    if finding.kernel:
        parts.append(f"kernel {finding.kernel}")
    if finding.note:
        parts.append(finding.note)
    region = CompiledRegion(
        finding.stage or "", finding.subsystem, finding.node, finding.kernel, finding.others, finding.node_count
    )
    return Culprit(finding.operator, finding.file, finding.line, "; ".join(parts)), region

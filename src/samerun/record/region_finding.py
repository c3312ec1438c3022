"""What a run that looks inside compiled regions found: the record, and the file it goes into."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Literal

CompileStage = Literal["capture", "tracing", "decomposition", "lowering", "backend", "random numbers"]
STAGE_BACKENDS: tuple[tuple[str, CompileStage], ...] = (
    ("eager", "capture"), ("aot_eager", "tracing"), ("aot_eager_decomp_partition", "decomposition"),
)  # fmt: skip
"""Backends of torch.compile that stop after a stage, the first stage first."""
STAGE_TEXTS: dict[CompileStage, str] = {
    "capture": "capture by Dynamo",
    "tracing": "tracing by AOTAutograd (functionalization and the backward pass)",
    "decomposition": "decomposition or partitioning",
    "lowering": "lowering by inductor",
    "backend": "the program's own backend",
    "random numbers": "random numbers",
}


@dataclass(frozen=True)
class RegionFinding:
    """The first compiled region that gives another result than its own graph, and the node that makes the difference.

    node, operator: of the graph that Dynamo captured; "" if no part of the region shows it alone. file, line: of the
    program. stage: None if no backend shows it on the part that was found. subsystem: the decomposition, pass or
    lowering inside of that stage. others: the nodes without which it does not show. value: what differs, in words.
    alone: whether the node by itself is wrong. node_count: how many nodes the region has.
    """

    node: str = ""
    operator: str = ""
    file: str = ""
    line: int = 0
    stage: CompileStage | None = None
    subsystem: str = ""
    kernel: str = ""
    others: tuple[str, ...] = ()
    value: str = ""
    alone: bool = False
    node_count: int = 0
    note: str = ""

    def write(self, path: str) -> None:
        with open(path + ".part", "w", encoding="utf-8") as file:
            json.dump(asdict(self), file)
        os.replace(path + ".part", path)


def region_finding_path(folder: str, role: str) -> str:
    return os.path.join(folder, f"{role}.region.json")


def read_rank0_or_main_region_finding(folder: Path) -> RegionFinding | None:
    """The finding of the main process, or of rank 0; None if there is none that can be read."""
    for role in ("rank0", "main"):
        try:
            raw = json.loads(Path(region_finding_path(str(folder), role)).read_text(encoding="utf-8"))
            known = {field.name for field in fields(RegionFinding)}
            values = {name: value for name, value in raw.items() if name in known}
            return RegionFinding(**{**values, "others": tuple(values.get("others", ()))})
        except (OSError, ValueError, TypeError, AttributeError):
            continue
    return None

"""The file of a run: what every check found. It is both the state that a later call goes on from and the result.

Written anew, whole, as results come, so that it is valid whenever the run ends. Its `tables` are what
benchmarks/result_tables.py shows.
"""

from __future__ import annotations

import hashlib
import json
import os
import shlex
import statistics
import time
from collections.abc import Callable
from datetime import datetime, timezone
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from gpu_parts.checks import ROOT
from gpu_parts.table import PARTS, PartEntry

FORMAT = 1
WRITE_SECONDS = 1.0
SOURCE_SUFFIXES = (".py", ".c", ".h", ".inc", ".cu", ".txt", ".toml")
Facts = dict[str, Any]


class RunRecord:
    """The results of one machine, by part and check."""

    def __init__(self, path: Path, device: str) -> None:
        self.path, self.device = path, device
        self.parts: dict[str, Facts] = {}
        self.machine: Facts = {}
        self._written = 0.0

    def read(self) -> None:
        """Take up what an earlier call left. Raises ValueError for a file that is no record of this device."""
        if not self.path.exists():
            return
        found = json.loads(self.path.read_text(encoding="utf-8"))
        if not isinstance(found, dict) or found.get("format") != FORMAT or found.get("benchmark") != "gpu.py":
            raise ValueError("it is not a record of tools/gpu.py")
        if found["device"] != self.device:
            raise ValueError(f"it is the record of a run with --device {found['device']}")
        self.parts, self.machine = found["parts"], found["machine"]

    def begin_part(self, part: PartEntry, inputs: str) -> Facts:
        """The part's entry; emptied where its results come from other inputs (`inputs`: a digest)."""
        entry = self.parts.setdefault(part.name, {})
        if entry.get("inputs") != inputs:
            entry.clear()
            entry.update(inputs=inputs, ended=None, plan=[], checks={}, trouble=[], seconds=0.0)
        return entry

    def forget(self, selectors: list[str]) -> None:
        """Drop the results of what the selectors name (`failed`: all that failed)."""
        for part, entry in self.parts.items():
            for name, facts in list(entry.get("checks", {}).items()):
                if is_selected(part, name, selectors) or ("failed" in selectors and facts["state"] == "failed"):
                    del entry["checks"][name]
                    entry["ended"] = None

    def write(self, command: list[str], force: bool = True) -> None:
        """Write the file, at most once a second unless forced."""
        if not force and time.monotonic() - self._written < WRITE_SECONDS:
            return
        self._written = time.monotonic()
        record = {
            "benchmark": "gpu.py",
            "format": FORMAT,
            "command": shlex.join(["python", "tools/gpu.py", *command]),
            "date": datetime.now(timezone.utc).date().isoformat(),
            "device": self.device,
            "machine": self.machine,
            "tables": make_tables(self.parts, self.device),
            "parts": self.parts,
        }
        self.path.parent.mkdir(parents=True, exist_ok=True)
        part = self.path.with_name(self.path.name + ".part")
        part.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
        os.replace(part, self.path)


def is_selected(part: str, check: str, selectors: list[str]) -> bool:
    """Whether one of the selectors PART or PART:PATTERN names this check."""
    for selector in selectors:
        name, _, pattern = selector.partition(":")
        if name == part and fnmatchcase(check, pattern or "*"):
            return True
    return False


def digest_inputs(part: PartEntry, more: str) -> str:
    """A digest of the files that a part's results come from, and of `more` (torch and the device)."""
    digest = hashlib.sha256(more.encode())
    for place in sorted({*part.inputs, f"tools/gpu_parts/{part.name}.py"}):
        path = ROOT / place
        for file in sorted(path.rglob("*")) if path.is_dir() else [path]:
            if file.suffix in SOURCE_SUFFIXES and file.is_file():
                digest.update(f"{file.relative_to(ROOT)}\0".encode() + file.read_bytes() + b"\0")
    return digest.hexdigest()[:16]


def summarize_part(entry: Facts | None) -> tuple[str, dict[str, int]]:
    """One word or sentence for a part, and how many of its checks hold, failed, were skipped, or were not reached."""
    if not entry or not (entry.get("plan") or entry.get("trouble")):
        return "not reached", {"holds": 0, "failed": 0, "skipped": 0, "left": 0}
    states = [facts["state"] for facts in entry["checks"].values()]
    counts = {state: states.count(state) for state in ("holds", "failed", "skipped")}
    counts["left"] = len([name for name in entry["plan"] if name not in entry["checks"]])
    if entry["ended"] == "unusable":
        return "skipped", counts
    if entry["ended"] == "broken":
        return "broken", counts
    if counts["failed"]:
        return "failed", counts
    if counts["left"]:
        return "not finished", counts
    return ("holds" if counts["holds"] else "skipped"), counts


def make_tables(parts: dict[str, Facts], device: str) -> list[Facts]:
    """The tables of the page: parts, failures, ratios, what was skipped, what was not reached."""
    overview, failures, ratios, skipped, left = [], [], [], [], []
    for number, part in enumerate(PARTS, 1):
        entry = parts.get(part.name)
        state, counts = summarize_part(entry)
        overview.append([f"{number} {part.name}: {part.what}", state, *counts.values()])
        if entry is None or not (entry["plan"] or entry["trouble"]):
            left.append([part.name, "all of it"])
            continue
        if entry["trouble"]:
            failures.append([part.name, one_cell(entry["trouble"]), repeat_command(part.name, None, device)])
        for name, facts in entry["checks"].items():
            if facts["state"] == "failed":
                failures.append([f"{part.name}: {name}", one_cell(facts["failure"]),
                                 repeat_command(part.name, name, device)])  # fmt: skip
            elif facts["state"] == "skipped":
                skipped.append([f"{part.name}: {name}", one_cell([facts["why"]])])
            for label, values in facts.get("ratios", {}).items():
                aim = facts.get("aims", {}).get(label)
                ratios.append([one_cell([f"{part.name}: {name}, {label}" if label else f"{part.name}: {name}"]),
                               min(values), statistics.median(values), max(values), aim,
                               "" if aim is None else "yes" if statistics.median(values) <= aim else "no"])  # fmt: skip
        missing = [name for name in entry["plan"] if name not in entry["checks"]]
        if missing:
            left.append([part.name, one_cell([", ".join(missing[:8]) + (
                f" and {len(missing) - 8} more" if len(missing) > 8 else "")])])  # fmt: skip
    numbers = dict.fromkeys(("hold", "failed", "skipped", "not reached"), "d")
    return [
        {"title": "Parts", "columns": {"part": "", "state": "", **numbers}, "rows": overview},
        {"title": "What failed", "columns": {"check": "", "first lines": "", "this alone": ""}, "rows": failures},
        {
            "title": "Ratios, of samerun's time to what it is compared with",
            "columns": {"check": "", "least": ".2f", "median": ".2f", "most": ".2f", "aim": ".2f", "reached": ""},
            "rows": ratios,
        },
        {"title": "What was skipped", "columns": {"check": "", "why": ""}, "rows": _group_reasons(skipped)},
        {"title": "What was not reached", "columns": {"part": "", "checks": ""}, "rows": left},
    ]


def _group_reasons(rows: list[list[str]]) -> list[list[str]]:
    """Checks that were skipped for the same reason, in one row."""
    by_reason: dict[tuple[str, str], list[str]] = {}
    for name, why in rows:
        by_reason.setdefault((name.partition(":")[0], why), []).append(name)
    return [
        [names[0] if len(names) == 1 else f"{part}: {len(names)} checks", why]
        for (part, why), names in by_reason.items()
    ]


def one_cell(lines: list[str]) -> str:
    """Lines as one cell of a Markdown table."""
    return "<br>".join(
        line.replace("&", "&amp;").replace("<", "&lt;").replace("|", "\\|").replace("`", "'") for line in lines
    )


def repeat_command(part: str, check: str | None, device: str) -> str:
    """What repeats this alone, for a terminal."""
    selector = part if check is None else f"{part}:{check.translate(_LITERAL)}"
    words = ["python", "tools/gpu.py", *(["--device", device] if device != "cuda" else []), "--repeat", selector]
    return f"`{shlex.join(words)}`".replace("|", "\\|")


_LITERAL = str.maketrans({"[": "[[]", "*": "[*]", "?": "[?]"})


def list_states(record: RunRecord, say: Callable[[str], None]) -> None:
    for number, part in enumerate(PARTS, 1):
        state, counts = summarize_part(record.parts.get(part.name))
        told = ", ".join(f"{count} {word}" for word, count in counts.items() if count)
        say(f"{number} {part.name:10} {part.what}\n             {state}{f' ({told})' if told else ''}")

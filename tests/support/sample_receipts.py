"""A small receipt made without a run, for tests of what reads receipts."""

from __future__ import annotations

import copy
from hashlib import blake2b
from typing import Any

from samerun.record.receipt.assemble import NewReceipt, ProcessSection, assemble_receipt
from samerun.record.receipt.step_table import (
    DIGEST_BYTES,
    EVIDENCE,
    VALUES,
    StepTable,
    build_step_table,
)

FACTS: dict[str, Any] = {
    "read_at": "first optimizer step",
    "knobs": {"threads": 1, "mkl_cbwr": None},
    "machine": {"processor": "a processor", "cores": 2, "torch": {"version": "2.13.0", "threads": 1}},
    "packages": {"torch": "2.13.0", "numpy": "2.4.6"},
    "variables": {"OMP_NUM_THREADS": "1"},
    "seed": 7,
    "streams": [],
    "sources": {"train.py": "0" * 64},
}
NOTHING: dict[str, Any] = {
    "seeds": [], "files": [], "loaded": [], "environment": {}, "saved": [], "outputs": [], "final": [], "marks": [],
}  # fmt: skip


def cell(text: str) -> bytes:
    return blake2b(text.encode(), digest_size=DIGEST_BYTES).digest()


def table(columns: tuple[str, ...], steps: int, other: dict[tuple[int, str], str] | None = None) -> StepTable:
    """Steps with known digests; `other`: (step from 1, column) -> another value."""
    other = other or {}
    rows = [cell(other.get((step, name), f"{step} {name}")) for step in range(1, steps + 1) for name in columns]
    return build_step_table(columns, b"".join(rows))


def section(role: str = "main", steps: int = 5, other: Any = None, **told: Any) -> ProcessSection:
    return ProcessSection(role, 1, True, "", {**copy.deepcopy(NOTHING), **told}, table(VALUES, steps, other),
                   table(EVIDENCE, steps, other))  # fmt: skip


def made(*sections: ProcessSection, facts: dict[str, Any] | None = None, **parts: Any) -> NewReceipt:
    given: dict[str, Any] = {
        "version": "0.1.0",
        "command": {"form": "script", "words": ["train.py"]},
        "held_settings": None,
        "ending": {"exit_code": 0, "signal": None},
        "code": {"commit": None, "diff": None, "untracked": None},
        "sections": list(sections) or [section()],
        "read_errors": [],
        "facts": {1: {**copy.deepcopy(FACTS), **(facts or {})}},
        "fallback_facts": copy.deepcopy(FACTS),
        "circumstances": {"began": "2026-11-21T08:00:00.000+00:00", "host": "here"},
    }
    return assemble_receipt(**{**given, **parts})

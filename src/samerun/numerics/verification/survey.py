"""Whether portable kernels give the specified bits on this machine: the record behind `samerun doctor --numerics`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from samerun.base.errors import SamerunError
from samerun.numerics.kernels import library
from samerun.numerics.verification import conformance

SPECIFICATION = 1
"""The version of the specification."""


def survey_machine(progress: Callable[[int, int], None]) -> dict[str, Any]:
    """Compute every row of the conformance vectors at the level in force, and on each CUDA device.
    `progress(rows done, rows in all)`.

    `different`: the rows with other bits, what was wanted and what came. `cuda`: the same for each device, with its
    name; or `trouble`, why its kernels cannot run.
    """
    expected = conformance.read_expected_vectors()
    devices = torch.cuda.device_count() if torch.version.cuda and torch.cuda.is_available() else 0
    total, done = len(expected.splitlines()) * (1 + devices), 0

    def on_row(row: conformance.ConformanceRow) -> None:
        nonlocal done
        done += 1
        progress(done, total)

    differences = conformance.find_differences(expected, on_row=on_row)
    rows = done
    cuda = [_survey_device(expected, f"cuda:{number}", on_row) for number in range(devices)]
    return {
        "specification": SPECIFICATION,
        "library": library.load_library() is not None,
        "level": library.current_level(),
        "levels": library.supported_levels(),
        "threads": torch.get_num_threads(),
        "rows": rows,
        "different": _describe_differences(differences),
        "cuda": cuda,
    }


def _describe_differences(differences: list[tuple[conformance.ConformanceRow, str]]) -> list[dict[str, Any]]:
    return [
        {"operator": row.operator, "type": row.type, "n": row.n, "wanted": wanted, "got": row.digest}
        for row, wanted in differences
    ]


def _survey_device(expected: str, device: str, on_row: Callable[[conformance.ConformanceRow], None]) -> dict[str, Any]:
    rows = 0

    def count_row(row: conformance.ConformanceRow) -> None:
        nonlocal rows
        rows += 1
        on_row(row)

    record: dict[str, Any] = {"device": device, "name": torch.cuda.get_device_name(device), "trouble": None}
    try:
        differences = conformance.find_differences(expected, on_row=count_row, device=device)
    except SamerunError as error:
        return {**record, "trouble": str(error), "rows": rows, "different": []}
    return {**record, "rows": rows, "different": _describe_differences(differences)}

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


def survey(progress: Callable[[int, int], None]) -> dict[str, Any]:
    """Compute every row of the conformance vectors at the level in force, and on each CUDA device.
    `progress(rows done, rows in all)`.

    `different`: the rows with other bits, what was wanted and what came. `cuda`: the same for each device, with its
    name; or `trouble`, why its kernels cannot run.
    """
    expected = conformance.vectors()
    devices = torch.cuda.device_count() if torch.version.cuda and torch.cuda.is_available() else 0
    total, done = len(expected.splitlines()) * (1 + devices), 0

    def seen(row: conformance.Row) -> None:
        nonlocal done
        done += 1
        progress(done, total)

    wrong = conformance.differences(expected, seen=seen)
    rows = done
    cuda = [_on_device(expected, f"cuda:{number}", seen) for number in range(devices)]
    return {
        "specification": SPECIFICATION,
        "library": library.load() is not None,
        "level": library.level(),
        "levels": library.levels(),
        "threads": torch.get_num_threads(),
        "rows": rows,
        "different": _told(wrong),
        "cuda": cuda,
    }


def _told(wrong: list[tuple[conformance.Row, str]]) -> list[dict[str, Any]]:
    return [
        {"operator": row.operator, "type": row.type, "n": row.n, "wanted": wanted, "got": row.digest}
        for row, wanted in wrong
    ]


def _on_device(expected: str, device: str, seen: Callable[[conformance.Row], None]) -> dict[str, Any]:
    rows = 0

    def one(row: conformance.Row) -> None:
        nonlocal rows
        rows += 1
        seen(row)

    record: dict[str, Any] = {"device": device, "name": torch.cuda.get_device_name(device), "trouble": None}
    try:
        wrong = conformance.differences(expected, seen=one, device=device)
    except SamerunError as error:
        return {**record, "trouble": str(error), "rows": rows, "different": []}
    return {**record, "rows": rows, "different": _told(wrong)}

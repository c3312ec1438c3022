"""Whether portable kernels give the specified bits on this machine: the record behind `samerun doctor --numerics`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from samerun.numerics import conformance, library

SPECIFICATION = 1
"""The version of the specification."""


def survey(progress: Callable[[int, int], None]) -> dict[str, Any]:
    """Compute every row of the conformance vectors at the level in force. `progress(rows done, rows in all)`.

    `different`: the rows with other bits, what was wanted and what came.
    """
    expected = conformance.vectors()
    total, done = len(expected.splitlines()), 0

    def seen(row: conformance.Row) -> None:
        nonlocal done
        done += 1
        progress(done, total)

    wrong = conformance.differences(expected, seen=seen)
    return {
        "specification": SPECIFICATION,
        "library": library.load() is not None,
        "level": library.level(),
        "levels": library.levels(),
        "threads": torch.get_num_threads(),
        "rows": done,
        "different": [
            {"operator": row.operator, "type": row.type, "n": row.n, "wanted": wanted, "got": row.digest}
            for row, wanted in wrong
        ],
    }

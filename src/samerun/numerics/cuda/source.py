"""The CUDA sources of the kernels, whole: what they include is written in their place, as NVRTC has no files."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

NAMES = ("elementwise", "sums", "segments", "softmax", "norms", "products", "random")
"""Files of native/cuda, each compiled alone when one of its kernels is first used."""

FLAGS = (
    "--std=c++17", "--fmad=false", "--ftz=false", "--prec-div=true", "--prec-sqrt=true", "--device-int128",
    "--diag-suppress=177",
)  # fmt: skip
"""No contraction, subnormals kept, no approximate division or root. (177: a shared function that is not used here.)"""

_INCLUDE = re.compile(r'\s*#include "(.*)"')
_FOLDERS = (Path(__file__).with_name("native"), Path(__file__).parents[4] / "native")
"""Beside this file where samerun is installed; in a checkout, where the C sources lie."""


@cache
def read_source(name: str) -> str:
    """The source of one of `NAMES`. Raises FileNotFoundError where it was not installed."""
    folder = next((place for place in _FOLDERS if (place / "cuda" / f"{name}.cu").exists()), _FOLDERS[0])
    return _inline_includes((folder / "cuda" / f"{name}.cu").resolve(), set())


def _inline_includes(path: Path, seen: set[Path]) -> str:
    if path in seen:
        return ""
    seen.add(path)
    lines = []
    for line in path.read_text(encoding="utf-8").splitlines():
        found = _INCLUDE.match(line)
        lines.append(_inline_includes((path.parent / found[1]).resolve(), seen) if found else line)
    return "\n".join(lines)

"""Which versions of Python, torch and NumPy samerun works with, and one line that says so where others are found."""

from __future__ import annotations

import re
import sys

from samerun.base.errors import SamerunError

OLDEST = {"torch": "2.10", "numpy": "1.26"}


def unsupported(name: str, found: str) -> str | None:
    """Why a version of a package is too old, in one sentence; None: it is not, or it does not say."""
    numbers = _numbers(found)
    if name not in OLDEST or numbers is None or numbers >= (_numbers(OLDEST[name]) or (0, 0)):
        return None
    return f"{name} {found} is not supported: samerun {_samerun()} needs {name} {OLDEST[name]} or later"


def check_versions() -> None:
    """Of the packages that this Python would import, without importing them. Raises SamerunError."""
    from importlib.metadata import PackageNotFoundError, version

    for name in OLDEST:
        try:
            why = unsupported(name, getattr(sys.modules.get(name), "__version__", None) or version(name))
        except (PackageNotFoundError, TypeError):  # not installed, or without a version: whoever needs it says so
            continue
        if why is not None:
            raise SamerunError(f"{why}.", hint=f"pip install '{name}>={OLDEST[name]}'")


def _numbers(version: str) -> tuple[int, int] | None:
    found = re.match(r"(\d+)\.(\d+)", version)
    return (int(found[1]), int(found[2])) if found else None


def _samerun() -> str:
    return str(getattr(sys.modules.get("samerun"), "__version__", ""))

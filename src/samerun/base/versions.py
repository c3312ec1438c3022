"""Which versions of Python, torch and NumPy samerun works with, and one line that says so where others are found."""

from __future__ import annotations

import re
import sys

from samerun.base.errors import SamerunError

OLDEST_SUPPORTED = {"torch": "2.10", "numpy": "1.26"}


def explain_unsupported_version(package: str, installed_version: str) -> str | None:
    """Why a version of a package is too old, in one sentence; None: it is not, or it does not say."""
    minimum = OLDEST_SUPPORTED.get(package)
    numbers = _major_and_minor(installed_version)
    if minimum is None or numbers is None or numbers >= (_major_and_minor(minimum) or (0, 0)):
        return None
    needed = f"samerun {_samerun_version()} needs {package} {minimum} or later"
    return f"{package} {installed_version} is not supported: {needed}"


def require_supported_torch_and_numpy() -> None:
    """Of the packages that this Python would import, without importing them. Raises SamerunError."""
    from importlib.metadata import PackageNotFoundError, version

    for name in OLDEST_SUPPORTED:
        try:
            why = explain_unsupported_version(
                name, getattr(sys.modules.get(name), "__version__", None) or version(name)
            )
        except (PackageNotFoundError, TypeError):  # not installed, or without a version: whoever needs it says so
            continue
        if why is not None:
            raise SamerunError(f"{why}.", hint=f"pip install '{name}>={OLDEST_SUPPORTED[name]}'")


def _major_and_minor(version: str) -> tuple[int, int] | None:
    found = re.match(r"(\d+)\.(\d+)", version)
    return (int(found[1]), int(found[2])) if found else None


def _samerun_version() -> str:
    return str(getattr(sys.modules.get("samerun"), "__version__", ""))

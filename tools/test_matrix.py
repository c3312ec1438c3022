"""Run the core of the test suite on the corners of what samerun supports: torch, Python and NumPy, oldest and newest.

    python tools/test_matrix.py [--python PATH ...] [--only WORD] [--every] [-- pytest arguments]

Environments lie outside the repository (SAMERUN_MATRIX, or the user's cache folder) and are used again; what samerun
itself is comes from this tree each time. A Python that is not on this machine is left out, and named. Exit code 1: a
combination failed.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from platformdirs import user_cache_path

ROOT = Path(__file__).resolve().parent.parent
FOLDER = Path(os.environ.get("SAMERUN_MATRIX", "") or user_cache_path("samerun-matrix"))
VERSIONS = ("3.10", "3.11", "3.12", "3.13", "3.14")
OLDEST_TORCH, NEWEST = "2.10.*", "newest"
OLDEST_NUMPY = "1.26.*"
OLDEST_WITH_NEWEST_TORCH = "3.11"
LAST_WITH_OLDEST_NUMPY = "3.12"
"""NumPy 1.26 has no wheel for a newer Python."""

CORE = (
    "tests/base/test_wrapped_types.py", "tests/check/test_variations.py", "tests/commands/test_check.py",
    "tests/commands/test_doctor.py", "tests/commands/test_run_command.py", "tests/control/test_seeds.py",
    "tests/control/test_switches.py", "tests/data/test_loader_resume.py",
    "tests/numerics/aten_handlers/test_portable.py",
    "tests/numerics/kernels/test_numerics_library.py", "tests/record/watching/test_quick_mode.py",
)  # fmt: skip
"""What meets the internals of Python, torch and NumPy: recorder, interceptors, seeds, switches, kernels, reports."""


@dataclass(frozen=True)
class Combination:
    """One environment of the matrix."""

    version: str
    torch: str
    numpy: str

    @property
    def name(self) -> str:
        return f"python{self.version}-torch{self.torch}-numpy{self.numpy}".replace(".*", "")

    def requirements(self) -> list[str]:
        pins = {"torch": self.torch, "numpy": self.numpy}
        return [name if pin == NEWEST else f"{name}=={pin}" for name, pin in pins.items()]


def corner_combinations() -> Iterator[Combination]:
    """Oldest and newest of everything, as far as they exist together."""
    yield Combination(VERSIONS[0], OLDEST_TORCH, OLDEST_NUMPY)
    yield Combination(OLDEST_WITH_NEWEST_TORCH, NEWEST, OLDEST_NUMPY)
    yield Combination(VERSIONS[-1], OLDEST_TORCH, NEWEST)
    yield Combination(VERSIONS[-1], NEWEST, NEWEST)


def all_combinations() -> Iterator[Combination]:
    """Every Python, with the oldest and the newest torch and NumPy."""
    for version in VERSIONS:
        for torch in (OLDEST_TORCH, NEWEST):
            if VERSIONS.index(version) <= VERSIONS.index(LAST_WITH_OLDEST_NUMPY):
                yield Combination(version, torch, OLDEST_NUMPY)
            yield Combination(version, torch, NEWEST)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Run the core of the suite on other versions of torch, Python, NumPy.")
    parser.add_argument("--python", action="append", default=[], help="an interpreter that is not on PATH")
    parser.add_argument("--only", default="", help="combinations whose name has this word in it")
    parser.add_argument("--every", action="store_true", help="every Python, not only the corners")
    parser.add_argument("pytest", nargs="*", help="arguments of pytest (default: the core)")
    options = parser.parse_args(arguments)
    interpreters = find_interpreters(options.python)
    wanted = [one for one in (all_combinations if options.every else corner_combinations)() if options.only in one.name]
    results: dict[str, str] = {}
    for combination in wanted:
        python = interpreters.get(combination.version)
        if python is None:
            results[combination.name] = "left out: this Python is not here (--python PATH names one)"
            continue
        print(f"== {combination.name}", flush=True)
        results[combination.name] = test_combination(combination, python, options.pytest)
    print("\n".join(f"{name:<40} {result}" for name, result in results.items()))
    sys.exit(any(result.startswith("FAILED") for result in results.values()))


def find_interpreters(paths: Sequence[str]) -> dict[str, str]:
    """Version ("3.10") -> an interpreter that starts: the named ones first, then those on PATH."""
    candidates = [*paths, *(path for version in VERSIONS if (path := shutil.which(f"python{version}")))]
    found: dict[str, str] = {}
    for path in candidates:
        show = [path, "-c", "import sys; print('%d.%d' % sys.version_info[:2])"]
        done = subprocess.run(show, capture_output=True, text=True)
        if done.returncode == 0:
            found.setdefault(done.stdout.strip(), path)
    return found


def test_combination(combination: Combination, python: str, arguments: Sequence[str]) -> str:
    """Make or take the environment, and run the tests in it; says how they went."""
    environment = FOLDER / combination.name
    interpreter = environment / "bin/python"
    uv = [sys.executable, "-m", "uv", "--no-config"]
    if not (environment / ".complete").exists():
        shutil.rmtree(environment, ignore_errors=True)
        tests = [word for word in read_test_requirements() if not word.startswith(("mypy", "ruff", "clang-format"))]
        install = ["pip", "install", "--quiet", "--python", str(interpreter), *combination.requirements(), *tests]
        for words in (["venv", "--quiet", "--python", python, str(environment)], install):
            if subprocess.run([*uv, *words]).returncode:
                return "FAILED: its environment could not be made"
        (environment / ".complete").touch()
    editable = ["pip", "install", "--quiet", "--python", str(interpreter), "--no-deps", "--editable", str(ROOT)]
    if subprocess.run([*uv, *editable]).returncode:
        return "FAILED: samerun could not be built for it"
    show = "import sys, torch, numpy; print(sys.version.split()[0], torch.__version__, numpy.__version__)"
    versions = subprocess.check_output([interpreter, "-W", "ignore", "-c", show], text=True).split()
    done = subprocess.run(
        [interpreter, "-m", "pytest", "-m", "not exhaustive", "-n", "2", "-p", "no:cacheprovider",
         *(arguments or CORE)],
        cwd=ROOT, env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    what = "Python {}, torch {}, NumPy {}".format(*versions)
    return f"passed: {what}" if done.returncode == 0 else f"FAILED: {what}"


def read_test_requirements() -> list[str]:
    """What samerun and its tests need, as pyproject.toml says."""
    if sys.version_info < (3, 11):
        sys.exit("test_matrix: run this with Python 3.11 or later.")
    import tomllib  # type: ignore[import-not-found]

    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    needed: list[str] = [*project["dependencies"], *project["optional-dependencies"]["dev"]]
    return [word for word in needed if not word.startswith("numpy")]


if __name__ == "__main__":
    main()

"""Where the repository's folders are, for tests that read them or run a program of them."""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TESTS = ROOT / "tests"
PROGRAMS = TESTS / "programs"
SUPPORT = TESTS / "support"
ZOO = sorted((TESTS / "zoo").glob("*.py"))

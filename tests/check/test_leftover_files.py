"""A file that the first run left, outside of the working directory: `~/.cache`, a folder for temporary files."""

from __future__ import annotations

from pathlib import Path

import pytest
from check_command import check

PROGRAM = """\
import os, random
from pathlib import Path
random.seed(0)
cache = Path(os.environ["CACHE_FOLDER"]).expanduser() / "texts" / "corpus.txt"
if cache.exists():
    text = cache.read_text()
else:
    source = random.Random(3) if OWN else random
    text = " ".join(source.choice("abc") for _ in range(40))
    cache.parent.mkdir(parents=True, exist_ok=True)
    cache.write_text(text)
print("score", random.random() + text.count("a"))
"""


def check_with_cache(folder: Path, cache: str, own: bool) -> tuple[int, dict]:
    for name in ("home", "work", "elsewhere"):
        (folder / name).mkdir()
    (folder / "home" / "notes.txt").write_text("")
    (folder / "work" / "program.py").write_text(PROGRAM.replace("OWN", str(own)))
    return check(["program.py"], folder / "work", HOME=str(folder / "home"), CACHE_FOLDER=cache)


@pytest.mark.slow
def test_a_cache_in_the_home_directory_is_confirmed_by_runs_without_it(tmp_path: Path) -> None:
    code, report = check_with_cache(tmp_path, "~/.cache", own=False)
    cause = report["cause"]
    assert (code, cause["kind"], cause["line"], cause["certain"]) == (1, "data-changed", 5, True), cause
    assert (tmp_path / "home" / ".cache" / "texts" / "corpus.txt").exists()  # the user's files stay


@pytest.mark.exhaustive
def test_a_cache_that_cannot_be_taken_away_is_a_suspect_after_few_runs(tmp_path: Path) -> None:
    code, report = check_with_cache(tmp_path, str(tmp_path / "elsewhere"), own=False)
    cause = report["cause"]
    assert (code, cause["kind"], cause["line"], cause["certain"]) == (1, "data-changed", 5, False), cause
    assert len(report["runs"]) <= 8


@pytest.mark.exhaustive
def test_a_cache_that_changes_no_draws_is_no_difference(tmp_path: Path) -> None:
    code, report = check_with_cache(tmp_path, "~/.cache", own=True)
    assert (code, report["verdict"]) == (0, "same"), report

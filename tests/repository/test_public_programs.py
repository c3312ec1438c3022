"""The list of programs that others wrote, and how lines are put into them. `make test-programs` runs the programs."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

if sys.version_info < (3, 11):
    pytest.skip("the list is read with tomllib", allow_module_level=True)

import run_public_programs as runner

from samerun.check.causes.table import CAUSES

PROGRAMS = runner.read_list(runner.LISTED / "programs.toml")


def test_the_list_names_commits_licences_and_hazards() -> None:
    assert len(PROGRAMS) >= 30
    assert len({program.name for program in PROGRAMS}) == len(PROGRAMS)
    sources = runner.tomllib.loads((runner.LISTED / "programs.toml").read_text())["source"]
    assert all(source["licence"] in {"MIT", "Apache-2.0", "BSD-3-Clause"} for source in sources.values())
    kinds = {cause.kind for cause in CAUSES}
    for program in PROGRAMS:
        assert re.fullmatch("[0-9a-f]{40}", program.commit), program.name
        assert program.hazard.kind in kinds, program.name
        assert program.hazard.insertion is not None or program.seeding, f"{program.name} has no hazard of either kind"
        assert program.hazard.line > 0, program.name


def test_lines_are_put_behind_the_published_ones(tmp_path: Path) -> None:
    """Numbers of lines are those of the published file, in whatever order and number the insertions come."""
    repository = tmp_path / "clones" / "someone+programs"
    (repository / "code").mkdir(parents=True)
    (repository / "code" / "train.py").write_text("first\nsecond\nthird\n")
    for words in (["init", "-q"], ["add", "."], ["-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "one"]):
        subprocess.run(["git", *words], cwd=repository, check=True)
    commit = subprocess.run(["git", "rev-parse", "HEAD"], cwd=repository, check=True, capture_output=True, text=True)
    planted = runner.Insertion("code/train.py", 1, "planted\nmore")
    program = runner.PublicProgram(
        "one", "https://example.invalid/someone/programs", commit.stdout.strip(), ["code"], "code", ["train.py"], [],
        [runner.Insertion("code/train.py", 2, "seeded")], runner.PlantedHazard("time", "code/train.py", 2, planted), [],
    )  # fmt: skip
    folder = runner.unpack_program(program, tmp_path / "clones", tmp_path / "out", planted)
    assert (folder / "train.py").read_text() == "first\nplanted\nmore\nsecond\nseeded\nthird\n"


def test_what_tells_the_time_is_left_out_of_comparisons() -> None:
    program = next(one for one in PROGRAMS if one.name == "makemore")
    line = "step 0 | loss 3.3 | step time {}ms\n"
    assert runner.mask_times(program, line.format("12.5")) == runner.mask_times(program, line.format("7.25"))
    assert runner.find_difference("a\nb", "a\nc") == "line 2: 'b', 'c'"

"""Runs of a check lie at paths of one length: where they record must not move the program's objects in memory."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from samerun.base.target import resolve_target
from samerun.check.execution.runner import PlannedRun, Runner
from samerun.check.plan import RunPlan
from samerun.check.variations.memory import why_aslr_cannot_be_disabled
from samerun.check.variations.table import parse_vary_option
from samerun.record.config import WatchConfig

PROGRAM = """
import os
import torch
print(len(os.environ["SAMERUN_WATCH"]))
bags = [type("Bag", (), {})() for _ in range(200)]
print([bags.index(bag) for bag in set(bags)])
torch.ones(2).sum()
"""


HELD = "hash_seed,listing_order,memory,clock,locale,address_layout"


def held_plan(script: Path, *arguments: str, **watch: object) -> RunPlan:
    """The control plan of a check of this script."""
    target = resolve_target("script", [str(script), *arguments])
    plan = RunPlan(target.command, target.shown, WatchConfig(folder="", user_folder=target.user_folder))
    for variation in parse_vary_option(HELD):
        plan = variation.apply(plan, False)
    return plan.with_watch(**watch)


@contextmanager
def runner(folder: Path) -> Iterator[Runner]:
    made = Runner(folder, 300, lambda name, seconds, state: None)
    try:
        yield made
    finally:
        made.close()


@pytest.mark.exhaustive
@pytest.mark.skipif(bool(why_aslr_cannot_be_disabled()), reason=why_aslr_cannot_be_disabled())
def test_the_name_of_a_run_moves_nothing(tmp_path: Path) -> None:
    script = tmp_path / "it.py"
    script.write_text(PROGRAM, encoding="utf-8")
    said = []
    with runner(tmp_path / "runs") as made:
        for name in ("a", "a-name-that-is-longer", "b", "prefix-of-rounds.varied-together~11"):
            run = made.run(PlannedRun(held_plan(script), name, 300))
            assert run.exit_code == 0 and run.events
            said.append(run.read_output_tail("stdout"))
            assert (tmp_path / "runs" / name / "stdout").exists()
    assert said == said[:1] * 4
    assert not (tmp_path / "runs" / "now").exists()


@pytest.mark.slow
def test_where_links_cannot_be_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*args: object, **kwargs: object) -> None:
        raise OSError("no links here")

    monkeypatch.setattr(Path, "symlink_to", refused)
    script = tmp_path / "it.py"
    script.write_text("import torch\ntorch.ones(2).sum()\n", encoding="utf-8")
    with runner(tmp_path / "runs") as made:
        run = made.run(PlannedRun(held_plan(script), "a", 300))
    assert run.exit_code == 0 and run.operators == 2

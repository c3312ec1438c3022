"""Run a plan from nothing and as a fork, as the search of a check does."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from samerun.base.target import resolve_target
from samerun.check.execution.runner import Run, Runner
from samerun.check.plan import Plan
from samerun.check.variations.table import parse_vary_option
from samerun.record.config import WatchConfig

HELD = "hash_seed,listing_order,memory,clock,locale,address_layout"


def held_plan(script: Path, *arguments: str, **watch: object) -> Plan:
    """The control plan of a check of this script."""
    target = resolve_target("script", [str(script), *arguments])
    plan = Plan(target.command, target.shown, WatchConfig(folder="", user_folder=target.user_folder))
    for variation in parse_vary_option(HELD):
        plan = variation.apply(plan, False)
    return plan.with_watch(**watch)


@contextmanager
def runner(folder: Path, time_limit: float | None = 300) -> Iterator[Runner]:
    made = Runner(folder, time_limit, lambda name, seconds, state: None)
    try:
        yield made
    finally:
        made.close()


def was_forked(run: Run) -> bool:
    return (run.folder / "forked").exists()


@contextmanager
def inside(folder: Path) -> Iterator[None]:
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)

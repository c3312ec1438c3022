"""Runs forked from a preloaded process: nothing a program can see, and no answer, is other than in fresh ones."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
import timeit
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from check_command import check, heed_interrupts
from forked_runs import held_plan, inside, runner, was_forked
from repository_paths import PROGRAMS, ROOT, TESTS

from samerun.base.launch import prepend_bootstrap_to_pythonpath
from samerun.check.execution.forks import ForkedProcess, PreloadedProcess
from samerun.check.execution.runner import Run, Runner
from samerun.record import pins
from samerun.record.comparison.compare import find_first_difference
from samerun.record.config import CONFIG_VARIABLE, WatchConfig

FACTS = PROGRAMS / "process_facts.py"
ENDS = PROGRAMS / "fork_ends.py"
EXAMPLES = ROOT / "examples"
PINNED = (pins.PYTHON, pins.TORCH, pins.NUMPY_GLOBAL, pins.ENTROPY, pins.CLOCK)
HELD = "rerun,hash_seed,address_layout,memory"

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="runs are forked on Linux only")


@pytest.fixture(scope="module")
def facts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Run]]:
    """One run from nothing and two forks, as they come and with every source of values pinned."""
    folder = tmp_path_factory.mktemp("facts")
    with inside(folder), runner(folder / "runs") as made:
        plan = held_plan(FACTS, "--a", "b c")
        runs = {"fresh": made.run(plan, "fresh")}
        runs |= {name: made.run(plan, name, allow_fork=True) for name in ("one", "two")}
        pinned = held_plan(FACTS, "--clock", pins=PINNED)
        runs["pinned fresh"] = made.run(pinned, "pinned-fresh")
        runs |= {f"pinned {name}": made.run(pinned, f"pinned-{name}", allow_fork=True) for name in ("one", "two")}
        assert made.forks.disabled_reason == ""
        yield runs


def said(run: Run) -> tuple[dict[str, Any], dict[str, Any], list[str]]:
    stable, varying, *rest = (run.folder / "stdout").read_text().splitlines()
    return json.loads(stable), json.loads(varying), rest


def test_a_fork_is_as_a_fresh_process(facts: dict[str, Run]) -> None:
    assert [was_forked(facts[name]) for name in ("fresh", "one", "two")] == [False, True, True]
    fresh, _, end = said(facts["fresh"])
    assert end == ["last"]
    assert any(name.startswith("logging.Formatter.converter") for name in fresh["intercepted"])
    for name in ("one", "two"):
        forked, _, end = said(facts[name])
        assert end == ["last"]
        assert {k: v for k, v in forked.items() if v != fresh[k]} == {}
        assert (facts[name].folder / "stderr").read_text() == (facts["fresh"].folder / "stderr").read_text()
        assert facts[name].exit_code == 0


def test_a_fork_records_the_same_events(facts: dict[str, Run]) -> None:
    one, two = facts["fresh"], facts["one"]
    assert (one.steps, one.events, one.operators) == (two.steps, two.events, two.operators)
    assert one.operators > 50
    assert find_first_difference(one.traces, two.traces, ()) is None


def test_what_fresh_processes_draw_every_fork_draws_anew(facts: dict[str, Run]) -> None:
    drawn = [said(facts[name])[1] for name in ("fresh", "one", "two")]
    for source in drawn[0]:
        values = {str(each[source]) for each in drawn}
        assert len(values) == 3, source


def test_pinned_sources_are_pinned_in_forks(facts: dict[str, Run]) -> None:
    fresh, one, two = (said(facts[f"pinned {name}"]) for name in ("fresh", "one", "two"))
    assert was_forked(facts["pinned one"])
    for source in ("python", "torch", "numpy", "authkey", "urandom"):
        assert one[1][source] == two[1][source] == fresh[1][source], source
    assert one[0]["clock"] == two[0]["clock"] == fresh[0]["clock"] > pins.PINNED_CLOCK_START


# --- where a fork would not be the same ---------------------------------------------------------------------
def ends(folder: Path, stack: ExitStack) -> Runner:
    """A runner whose first run, from nothing, is done."""
    stack.enter_context(inside(folder))
    made = stack.enter_context(runner(folder / "runs"))
    assert made.run(held_plan(folder / "program.py", "mark"), "first").exit_code == 0
    return made


@pytest.fixture
def program(tmp_path: Path) -> Path:
    shutil.copy(ENDS, tmp_path / "program.py")
    return tmp_path


def test_a_program_that_prepares_the_import_of_torch_is_not_forked(program: Path) -> None:
    with ExitStack() as stack:
        (program / "other_threads_always").touch()
        made = ends(program, stack)
        assert "environment" in made.forks.disabled_reason
        run = made.run(held_plan(program / "program.py", "mark"), "again", allow_fork=True)
        assert not was_forked(run)
        assert "threads 2" in (run.folder / "stdout").read_text()


@pytest.mark.parametrize("what", ["other_threads", "timeit.py"])
def test_a_fork_that_would_import_another_thing_is_run_from_nothing(program: Path, what: str) -> None:
    with ExitStack() as stack:
        made = ends(program, stack)
        if what.endswith(".py"):
            shutil.copy(timeit.__file__, program / what)  # a module of the same name beside the program
        else:
            (program / what).touch()
        plan = held_plan(program / "program.py", "mark")
        run = made.run(plan, "again", allow_fork=True)
        assert (run.exit_code, was_forked(run)) == (0, False)
        assert ("timeit" if what.endswith(".py") else "environment") in made.forks.disabled_reason
        assert not was_forked(made.run(plan, "third", allow_fork=True))


def test_a_fork_that_fails_is_run_from_nothing(program: Path) -> None:
    with ExitStack() as stack:
        made = ends(program, stack)
        plan = held_plan(program / "program.py", "mark").with_environment(HOW="fork fails")
        run = made.run(plan, "again", allow_fork=True)
        assert (run.exit_code, was_forked(run), made.forks.disabled_reason) == (0, False, "a forked run failed")


@pytest.mark.parametrize("change", ["hash_seed", "address_layout", "memory"])
def test_what_is_not_held_is_not_forked(program: Path, change: str) -> None:
    from samerun.check.variations.table import parse_vary_option

    with ExitStack() as stack:
        made = ends(program, stack)
        plan = held_plan(program / "program.py", "mark")
        assert made.forks.may_fork(plan)
        if change == "hash_seed":
            assert not made.forks.may_fork(plan.with_environment(PYTHONHASHSEED="random"))
        elif change == "address_layout":
            from dataclasses import replace

            assert not made.forks.may_fork(replace(plan, prefix=()))
        else:
            assert not made.forks.may_fork(parse_vary_option("memory")[0].apply(plan, True))


# --- how runs end -------------------------------------------------------------------------------------------
ENDINGS = {"": 0, "exit": 3, "text": 1, "leave": 4, "raise": 1, "killed": -9, "interrupted": -2}


def test_exit_codes_and_last_words(program: Path) -> None:
    with inside(program):
        plan = held_plan(program / "program.py")
        environment = prepend_bootstrap_to_pythonpath(
            {**os.environ, **plan.environment, CONFIG_VARIABLE: "", "HOW": ""}
        )
        parent = PreloadedProcess.start_or_return_reason(
            plan.command, plan.prefix, environment, ["numpy", "torch"], program / "preloaded"
        )
        assert isinstance(parent, PreloadedProcess), parent
        try:
            for how, code in ENDINGS.items():
                folder = program / f"run-{how}"
                folder.mkdir()
                config = folder / "watch.json"
                config.write_text(WatchConfig(folder=str(folder)).to_json())
                with open(folder / "stdout", "wb") as out, open(folder / "stderr", "wb") as err:
                    child = parent.try_fork_child({CONFIG_VARIABLE: str(config), "HOW": how}, out, err, 0o022)
                    assert isinstance(child, ForkedProcess)
                    assert child.wait(120) == code, how
                text, errors = (folder / "stdout").read_text(), (folder / "stderr").read_text()
                assert ("at exit" in text) == (how not in ("leave", "killed")), how
                assert ("ValueError: raised" in errors) == (how == "raise")
                assert ("a text" in errors) == (how == "text")
                assert "serve.py" not in errors
                assert (folder / "main.trace").stat().st_size > 0
        finally:
            parent.close()
    assert not list_commands_running_in(program, "run-")


def test_a_fork_over_its_time_limit_leaves_no_process(program: Path) -> None:
    with ExitStack() as stack:
        made = ends(program, stack)
        (program / "hang").touch()
        made.time_limit = 6
        plan = held_plan(program / "program.py", "mark")
        assert made.run(plan, "again", allow_fork=True).timed_out
        assert made.forks.disabled_reason == "a forked run failed"
    assert not list_commands_running_in(program, "mark")


def test_an_interrupt_in_a_fork_leaves_no_process(program: Path) -> None:
    (program / "hang_forked").touch()
    kept = program / "kept"
    process = subprocess.Popen(
        [sys.executable, "-m", "samerun", "check", "--vary", HELD, "--save", str(kept), "program.py", "mark"],
        cwd=program, stderr=subprocess.PIPE, text=True, preexec_fn=heed_interrupts,
    )  # fmt: skip
    deadline = time.monotonic() + 400
    while not list(kept.glob("*/forked")) and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.1)
    assert list(kept.glob("*/forked"))
    time.sleep(3)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 2
    assert "interrupted" in errors
    assert not list_commands_running_in(program, "mark")


def list_commands_running_in(folder: Path, mark: str) -> list[str]:
    """Processes in this folder with this word in their command line or among their open files."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            words = (entry / "cmdline").read_bytes().decode("utf-8", "replace")
            here = os.readlink(entry / "cwd")
        except OSError:
            continue
        if here == str(folder) and int(entry.name) != os.getpid() and mark in words:
            found.append(words)
    return found


# --- the same answers ---------------------------------------------------------------------------------------
CASES = {
    "example-cnn": EXAMPLES / "digits_cnn_buggy.py",
    "example-gpt": EXAMPLES / "char_gpt_buggy.py",
    "python": TESTS / "zoo" / "01_python_shuffle.py",
    "entropy": TESTS / "zoo" / "05_seed_zero_is_falsy.py",
    "library": TESTS / "zoo" / "61_library_private_rng.py",
}
QUICK = ("library",)
UNFORKED = ("example-gpt",)
"""The hash seed is what differs: its runs cannot come from one process."""
AT_RANDOM = ("elements_different", "max_abs", "max_ulp", "spread", "growth", "seconds")
"""What is another number in every check of a program that draws without a seed."""


def comparable(report: Any) -> Any:
    """A report without times, without what is random in it, and without how busy the machine was.

    Nor with the runs that let a source go again: two forks are compared with each other, as a fork lies at other
    addresses than the fresh process of the first run.
    """
    if isinstance(report, dict):
        kept = {k: comparable(v) for k, v in report.items() if k not in (*AT_RANDOM, "receipt")}
        if "runs" in kept:
            kept["runs"] = [run for run in kept["runs"] if "-free" not in run["id"]]
        if "notes" in kept:
            kept["notes"] = [note for note in kept["notes"] if not note.startswith("The machine was busy")]
        return kept
    return [comparable(each) for each in report] if isinstance(report, list) else report


@pytest.mark.parametrize(
    "case", [pytest.param(case, marks=[] if case in QUICK else [pytest.mark.exhaustive]) for case in CASES]
)
def test_answers_are_the_same_with_and_without_forks(case: str, tmp_path: Path) -> None:
    # The first line of a program of the zoo gives the answer away.
    lines = CASES[case].read_text(encoding="utf-8").splitlines(keepends=True)
    (tmp_path / "program.py").write_text("".join(["#\n", *lines[1:]] if "zoo" in str(CASES[case]) else lines))
    reports = []
    for switch in ("off", "on"):
        saved = tmp_path / switch
        arguments = ["--vary", HELD, "--max-steps", "6", "--save", str(saved), "program.py"]
        code, report = check(arguments, tmp_path, SAMERUN_FORKS=switch)
        assert code == 1
        assert bool(list(saved.glob("*/forked"))) == (switch == "on" and case not in UNFORKED)
        reports.append(comparable(report))
    assert reports[0] == reports[1]

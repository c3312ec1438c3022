"""Run a test, or a function, twice in this process, and compare what was computed. Loaded by the pytest plugin."""

from __future__ import annotations

import asyncio
import inspect
import os
import shlex
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from _pytest.runner import runtestprotocol

import samerun
from samerun.base.errors import SamerunError
from samerun.check.causes.table import cause_of_kind, list_suspects_likeliest_first
from samerun.check.evidence.situation import Situation
from samerun.check.execution.runner import Run
from samerun.check.plan import RunPlan
from samerun.control.random_source import validate_seed
from samerun.record.comparison.compare import Difference, find_first_difference
from samerun.record.comparison.results import is_harmless_order_difference
from samerun.record.config import ROLE_VARIABLE, WatchConfig
from samerun.record.receipt.assemble import redact_and_relativize_path
from samerun.record.trace import format as f
from samerun.record.trace.run import RunTraces, count_events
from samerun.record.watching import start

RESULTS = (f.OPERATOR, f.MARK, f.STEP, f.SAVE)
NOTHING = (
    "computed nothing that could be compared.\n"
    '  Name what has to be the same: samerun.mark("result", values)'
)  # fmt: skip


DIFFERENT = "computed something else the second time, from the same seed"


class RunsNotComparable(Exception):
    """Why two runs cannot be compared, in words: never taken for "the same"."""


def run_twice_and_report(
    item: pytest.Item, nextitem: pytest.Item | None, marker: pytest.Mark | None
) -> list[pytest.TestReport]:
    """The reports of an item that ran twice: of the second run, with the verdict of the comparison."""
    cleared = pytest.CallInfo.from_call(lambda: item.session._setupstate.teardown_exact(None), "setup")
    if cleared.excinfo is not None:  # a fixture of the tests before could not be torn down
        return [item.ihook.pytest_runtest_makereport(item=item, call=cleared)]
    # `samerun check -- pytest` compares by itself.
    if start.current_recorder is not None and not start.current_recorder.stopped:
        return runtestprotocol(item, log=False, nextitem=nextitem)
    try:
        seed = read_seed_from_mark_or_option(marker, item.config)
    except SamerunError as error:
        text = f"samerun: {item.name}: {error}"
        refused = pytest.CallInfo.from_call(lambda: pytest.fail(text, pytrace=False), "setup")
        return [item.ihook.pytest_runtest_makereport(item=item, call=refused)]
    properties = list(item.user_properties)
    with tempfile.TemporaryDirectory(prefix="samerun-") as folder:
        sides = Path(folder) / "first", Path(folder) / "second"
        with record_seeded_run(sides[0], seed, item.config):
            reports = runtestprotocol(item, log=False, nextitem=None)
        if not all(report.passed for report in reports):
            return reports
        item.user_properties[:] = properties
        item._report_sections.clear()
        with record_seeded_run(sides[1], seed, item.config):
            reports = runtestprotocol(item, log=False, nextitem=nextitem)
        again = "python -m pytest " + shlex.quote(
            redact_and_relativize_path(str(item.path)) + item.nodeid[item.nodeid.find("::") :]
        )
        try:
            wrong = compare_traces_and_describe_difference(sides[0], sides[1], again)
        except RunsNotComparable as why:
            if marker is not None or str(why) != NOTHING:
                return _turn_all_passed_reports_into_error(reports, f"samerun: {item.name} {why}")
            for report in reports:
                setattr(report, "samerun_nothing", report.when == "call")
            return reports
    failed = next((report for report in reports if not report.passed), None)
    if failed is not None:
        head = f"samerun: {item.name} passed the first time and failed the second time, from the same seed {seed}."
        failed.longrepr = "\n".join(part for part in (head, wrong, "", failed.longreprtext) if part is not None)
    elif wrong is not None:
        called = next(report for report in reports if report.when == "call")
        called.outcome = "failed"
        called.longrepr = f"samerun: {item.name} {DIFFERENT} {seed}.\n{wrong}"
    return reports


def read_seed_from_mark_or_option(marker: pytest.Mark | None, config: pytest.Config) -> int:
    """The seed of `samerun(7)`, `samerun(seed=7)`, or of the option. Raises SamerunError for other arguments."""
    arguments = dict(marker.kwargs) if marker is not None else {}
    given = list(marker.args) if marker is not None else []
    seed = given.pop(0) if given else arguments.pop("seed", None)
    if given or arguments:
        more = ", ".join([*map(repr, given), *(f"{name}={value!r}" for name, value in arguments.items())])
        raise SamerunError(f"the mark takes one argument, samerun(seed=None); it was also given {more}.")
    return validate_seed(config.getoption("samerun_seed") if seed is None else seed, "pytest.mark.samerun")


def _turn_all_passed_reports_into_error(reports: list[pytest.TestReport], message: str) -> list[pytest.TestReport]:
    """An error in place of the result: what was not compared has not passed."""
    if not all(report.passed for report in reports):
        return reports
    reports[0].outcome, reports[0].longrepr = "failed", message
    return [report for report in reports if report.when != "call"]


def call_twice_or_fail_test(make_call: Callable[[], Any], seed: int, test_name: str, config: pytest.Config) -> Any:
    """What the second call returns. Fails the test where the two do not compute the same."""
    __tracebackhide__ = True
    if start.current_recorder is not None and not start.current_recorder.stopped:
        return _call_twice_with_receipts_or_fail(make_call, seed, test_name)
    value = None
    with tempfile.TemporaryDirectory(prefix="samerun-") as folder:
        sides = Path(folder) / "first", Path(folder) / "second"
        for side in sides:
            with record_seeded_run(side, seed, config):
                value = _await_if_coroutine(make_call())
                samerun.mark("return value", value)
        try:
            wrong = compare_traces_and_describe_difference(sides[0], sides[1], "")
        except RunsNotComparable as why:
            pytest.fail(f"samerun: {test_name} {why}", pytrace=False)
    if wrong is not None:
        pytest.fail(f"samerun: {test_name} {DIFFERENT} {seed}.\n{wrong}", pytrace=False)
    return value


def _call_twice_with_receipts_or_fail(make_call: Callable[[], Any], seed: int, test_name: str) -> Any:
    """The same by receipts, where the test itself is being recorded: parts of one trace are compared by steps."""
    from samerun.record.receipt.diff import describe_first_difference, diff_runs, load_run

    __tracebackhide__ = True
    value = None
    with tempfile.TemporaryDirectory(prefix="samerun-") as folder:
        files = [Path(folder) / "first run.json", Path(folder) / "second run.json"]
        for file in files:
            with samerun.isolate_rng():
                samerun.seed_everything(seed)
                with samerun.receipt(file):
                    value = _await_if_coroutine(make_call())
                    samerun.mark("return value", value)
        record = diff_runs(load_run(files[0]), load_run(files[1]), ignored_output_patterns=("*",))
    if record["verdict"] != "same":
        pytest.fail(f"samerun: {test_name} {DIFFERENT} {seed}.\n  {describe_first_difference(record)}", pytrace=False)
    return value


def _await_if_coroutine(value_or_coroutine: Any) -> Any:
    return asyncio.run(value_or_coroutine) if inspect.iscoroutine(value_or_coroutine) else value_or_coroutine


@contextmanager
def record_seeded_run(folder: Path, seed: int, config: pytest.Config) -> Iterator[None]:
    """Everything inside starts from the seed, and every operator is written to a trace in `folder`."""
    folder.mkdir()
    role = os.environ.pop(ROLE_VARIABLE, None)
    watch = WatchConfig(folder=str(folder), depth="ops", user_folder=str(config.rootpath))
    with samerun.isolate_rng():
        samerun.seed_everything(seed)
        recorder = start.current_recorder
        if recorder is None:
            recorder = start.start(watch)
        else:
            recorder.restart_after_finish(watch)
        assert recorder is not None
        try:
            yield
        finally:
            # Which models are still alive depends on fixtures that other tests share.
            for one in recorder.cleared_on_restart:
                one.clear()
            recorder.finish()
            recorder.pause_operators_until_restart()
            os.environ.pop(ROLE_VARIABLE, None)
            if role is not None:
                os.environ[ROLE_VARIABLE] = role


def compare_traces_and_describe_difference(folder_a: Path, folder_b: Path, rerun_command: str) -> str | None:
    """What differs between two recorded runs, in words; None: nothing. Raises RunsNotComparable."""
    sides = RunTraces(folder_a), RunTraces(folder_b)
    failures = [each for side in sides for each in side.failures]
    if failures:
        raise RunsNotComparable(f"could not be recorded: {failures[0]}.")
    if not any(count_events(trace, kind) for side in sides for trace in side.traces.values() for kind in RESULTS):
        raise RunsNotComparable(NOTHING)
    difference = find_first_difference(*sides)
    if difference is None or is_harmless_order_difference(*sides, difference):
        return None
    lines = [
        f"  First difference: {_describe_difference_place(difference)}",
        *_describe_suspect_and_fix(folder_a, folder_b, difference),
    ]
    if rerun_command:
        lines.append(f"  To confirm the cause: samerun check -- {rerun_command}")
    return "\n".join(lines)


def _describe_difference_place(difference: Difference) -> str:
    event = difference.event
    if event is None:
        return f"only one run has the process {difference.role}"
    if event.kind == f.MARK:
        return f"{event.name}, after {difference.step} optimizer steps"
    names = event.name
    if event.kind == f.LEAF:
        names = f"optimizer step {difference.step}: {event.name}"
    where = f" at {redact_and_relativize_path(event.file)}:{event.line}" if event.line else ""
    module = f" in {event.module}" if event.module else ""
    extra = ", which only one run has" if difference.what == "operator" else ""
    return f"{names}{module}{where}{extra}"


def _describe_suspect_and_fix(folder_a: Path, folder_b: Path, difference: Difference) -> Iterator[str]:
    plan = RunPlan((), (), WatchConfig(folder=""))
    situation = Situation(
        "rerun", Run("first", (), 0, 0.0, folder_a, plan), Run("second", (), 0, 0.0, folder_b, plan), difference
    )
    listed = [
        one
        for one in list_suspects_likeliest_first(situation)
        if one.kind not in ("unknown", "control-flow") and one.line
    ]
    if not listed:
        yield "  What was made when the module was imported is shared by both runs: globals, parameters of parametrize."
        return
    best = listed[0]
    yield f"  Suspect: {best.kind} at {redact_and_relativize_path(best.file)}:{best.line}: {'; '.join(best.evidence)}"
    yield f"  Fix: {cause_of_kind(best.kind).fix}"

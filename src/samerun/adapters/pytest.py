"""The pytest plugin: tests marked `samerun`, or all with `--samerun`, run twice and have to compute the same bits.

Light to load: samerun, torch and NumPy are imported when a test asks for them.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import pytest

SEED_OPTION = "--samerun-seed"
ALL_OPTION = "--samerun"
ACTIVE: pytest.StashKey[bool] = pytest.StashKey()
"""Of an item that is being checked."""


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("samerun")
    told = "Check every test: run it twice, with fresh fixtures, and compare what torch computes."
    group.addoption(ALL_OPTION, action="store_true", dest="samerun_all", help=told)
    told = "Seed of every generator at the start of both runs of a test that samerun checks. Default: 0."
    group.addoption(SEED_OPTION, type=int, default=0, metavar="N", help=told)


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers",
        "samerun(seed=None): run the test twice, fixtures included, from the same seed (default: --samerun-seed);"
        " both runs have to compute the same bits",
    )


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
    """Run the whole protocol of a checked item twice: with fixtures of every scope made anew."""
    marker = item.get_closest_marker("samerun")
    option = item.config.option
    if (marker is None and not option.samerun_all) or option.setuponly or option.setupshow or option.collectonly:
        return None
    from samerun.adapters.rerun import run_twice_and_report

    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    item.stash[ACTIVE] = True
    for report in run_twice_and_report(item, nextitem, marker):
        item.ihook.pytest_runtest_logreport(report=report)
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    return True


@pytest.hookimpl
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Await the body of a checked async test that no other plugin takes care of."""
    if not pyfuncitem.stash.get(ACTIVE, False) or not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    import asyncio

    arguments = {name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames}
    asyncio.run(pyfuncitem.obj(**arguments))
    return True


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Tests that only `--samerun` asked to check, and in which there was nothing to compare."""
    unchecked = [one for one in terminalreporter.stats.get("passed", []) if getattr(one, "samerun_nothing", False)]
    if unchecked:
        terminalreporter.write_line(
            f"samerun: {len(unchecked)} passed without a comparison: nothing in them was computed by torch or marked."
        )


@pytest.fixture
def samerun_check(request: pytest.FixtureRequest) -> Callable[..., Any]:
    """`samerun_check(function, *arguments)` calls it twice from the same seed, and fails unless both compute the same.

    Compared are what it returns (tensors, arrays, numbers, in lists and dicts), operators of torch, optimizer steps,
    samerun.mark, and files written by torch.save. A coroutine function is awaited. Returns what the second call
    returned.
    """
    seed = request.config.getoption(SEED_OPTION)

    def check(function: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        __tracebackhide__ = True
        from samerun.adapters.rerun import call_twice_or_fail_test

        name = getattr(function, "__name__", "function")
        return call_twice_or_fail_test(lambda: function(*arguments, **named), seed, f"{name}()", request.config)

    return check

"""The pytest plugin: a test marked `samerun` runs twice and has to compute the same bits.

Light to load: samerun, torch and NumPy are imported when a test asks for them.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

SEED_OPTION = "--samerun-seed"


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("samerun")
    told = "Seed of every generator at the start of both runs of a test that samerun checks."
    group.addoption(SEED_OPTION, type=int, default=0, metavar="N", help=told)


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers",
        "samerun(seed=None): run the test's body twice from the same seed; both have to compute the same bits",
    )


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Any:
    """Run the body of a marked test twice. Fixtures are made once: what a body changes in them, it changes for both."""
    marker = pyfuncitem.get_closest_marker("samerun")
    if marker is None:
        return (yield)
    seed = marker.kwargs.get("seed", pyfuncitem.config.getoption(SEED_OPTION))
    arguments = {name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames}
    body = pyfuncitem.obj
    pyfuncitem.obj = lambda **kwargs: _twice(lambda: body(**arguments), seed, f"{pyfuncitem.name}()", returned=False)
    try:
        return (yield)
    finally:
        pyfuncitem.obj = body


@pytest.fixture
def samerun_check(request: pytest.FixtureRequest) -> Callable[..., Any]:
    """`samerun_check(function, *arguments)` calls it twice from the same seed, and fails unless both compute the same.

    Compared are what it returns (tensors, arrays, numbers, in lists and dicts), optimizer steps, samerun.mark,
    and files written by torch.save. Returns what the second call returned.
    """
    seed = request.config.getoption(SEED_OPTION)

    def check(function: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        name = getattr(function, "__name__", "function")
        return _twice(lambda: function(*arguments, **named), seed, f"{name}()", returned=True)

    return check


def _twice(body: Callable[[], Any], seed: int, name: str, returned: bool) -> Any:
    import samerun
    from samerun.record.receipt.diff import diff, in_words, side_from

    __tracebackhide__ = True
    value = None
    with tempfile.TemporaryDirectory(prefix="samerun-") as folder:
        files = [Path(folder) / "first run.json", Path(folder) / "second run.json"]
        for file in files:
            with samerun.isolate_rng():
                samerun.seed_everything(seed)
                with samerun.receipt(file):
                    value = body()
                    if returned:
                        samerun.mark("return value", value)
        first, second = (side_from(file) for file in files)
        record = diff(first, second, ignore=("*",))
    if not returned and not record["steps"] and not (_marks(first) or _marks(second)):
        pytest.fail(
            f"samerun: {name} computed nothing that could be compared.\n"
            '  Name what has to be the same: samerun.mark("result", tensors)',
            pytrace=False,
        )
    if record["verdict"] != "same":
        pytest.fail(f"samerun: {name} computed something else the second time, from the same seed {seed}.\n"
                    f"  {in_words(record)}", pytrace=False)  # fmt: skip
    return value


def _marks(side: Any) -> bool:
    processes = side.receipt["processes"].values()
    return any(one["marks"] or one["saved"] or one["final"] for one in processes)

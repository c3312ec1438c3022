"""The pytest plugin: which tests it fails, which it passes, and what it says."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib.metadata import entry_points
from importlib.util import find_spec
from pathlib import Path

import pytest

INSTALLED = any(one.value == "samerun.adapters.pytest" for one in entry_points(group="pytest11"))
PLUGIN = [] if INSTALLED else ["-p", "samerun.adapters.pytest"]
"""pytest finds the plugin of an installed samerun by itself, and refuses to load it twice."""

HEAD = """
import itertools, unittest
import numpy as np, pytest, torch, samerun

count = itertools.count()

def train(model=None, extra=0.0):
    model = torch.nn.Linear(4, 2) if model is None else model
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(3):
        optimizer.zero_grad()
        (model(torch.randn(8, 4)).pow(2).sum() * (1 + extra * (step == 2))).backward()
        optimizer.step()
"""

MARKED = """
pytestmark = pytest.mark.samerun

@pytest.fixture
def model():
    return torch.nn.Linear(4, 2)

@pytest.fixture(scope="module")
def shared():
    return torch.nn.Linear(4, 2)

@pytest.fixture(scope="session")
def unseeded():
    rng = np.random.default_rng()
    return torch.tensor(rng.normal(size=4))

def test_good(model):
    train(model)

@pytest.mark.parametrize("scale", [1.0, 2.0])
def test_shared_1(shared, scale):
    train(shared, scale)

def test_shared_2(shared, tmp_path, request):
    train(shared)
    assert not list(tmp_path.iterdir())
    (tmp_path / "written").touch()

def test_bad_fixture(unseeded):
    (unseeded * 2).sum()

def test_bad():
    train(extra=next(count))

class TestClass:
    def setup_method(self):
        self.model = torch.nn.Linear(4, 2)
    def test_method(self):
        train(self.model)

class TestCase(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.model = torch.nn.Linear(4, 2)
    def test_unit_good(self):
        train(self.model)
    def test_unit_bad(self):
        rng = np.random.default_rng()
        self.assertTrue(torch.tensor(rng.normal(size=3)).add(1).sum() != 0)
    def test_unit_skipped(self):
        self.skipTest("not here")

def test_loader():
    data = torch.utils.data.TensorDataset(torch.randn(8, 4))
    for (x,) in torch.utils.data.DataLoader(data, batch_size=4, shuffle=True, num_workers=1):
        x.sum()

def test_nothing():
    pass

def test_raises():
    assert 1 == 2

def test_fails_then():
    assert next(count) != 2 + torch.ones(1).int().item() * 0 or True
    first.append(torch.ones(1).sum())
    assert len(first) < 2
first = []

@pytest.mark.xfail(strict=True)
def test_expected():
    assert torch.ones(1).sum() == 2

async def test_async_good():
    train()

async def test_async_bad():
    torch.ones(3).mul(next(count) + 1).sum()

def test_call(samerun_check, request):
    value = samerun_check(lambda x: torch.rand(x), 3)
    samerun.seed_everything(request.config.getoption("--samerun-seed"))
    assert torch.equal(value, torch.rand(3))
"""

SEEDS = """
def seeded_with(seed):
    value = torch.rand(2)
    with samerun.isolate_rng():
        samerun.seed_everything(seed)
        assert torch.equal(value, torch.rand(2))

@pytest.mark.samerun
def test_plain():
    seeded_with(5)

@pytest.mark.samerun(7)
def test_positional():
    seeded_with(7)

@pytest.mark.samerun(seed=8)
def test_keyword():
    seeded_with(8)

@pytest.mark.samerun(seed=None)
def test_none():
    seeded_with(5)

@pytest.mark.samerun(-1)
def test_negative():
    seeded_with(5)

@pytest.mark.samerun(7, repeat=3)
def test_unknown():
    seeded_with(7)

def test_call(samerun_check):
    samerun_check(seeded_with, 5)

def test_bad_call(samerun_check):
    samerun_check(lambda: torch.ones(2) * next(count))

def test_async_call(samerun_check):
    async def draw():
        return torch.rand(2)
    assert torch.is_tensor(samerun_check(draw))

def test_unmarked_keeps_its_streams():
    torch.manual_seed(0)
    before = torch.rand(1)
    assert before == torch.rand(1, generator=torch.Generator().manual_seed(0))
    torch.ones(2) * next(count)
"""

ALL = """
def test_unmarked_bad():
    torch.ones(2) * next(count)

def test_words():
    assert "a".upper() == "A"

def test_draws():
    torch.rand(2) + 1
"""


def outcomes(tmp_path: Path, program: str, *words: str) -> tuple[dict[str, str], str]:
    """Of each test, and everything that pytest said."""
    (tmp_path / "test_it.py").write_text(HEAD + program)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-v", "-rA", *PLUGIN, "-p", "no:cacheprovider", "test_it.py",
         "--strict-markers", "-W", "error", *words],
        cwd=tmp_path, capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    pattern = r"^(PASSED|FAILED|ERROR|SKIPPED|XFAIL) .*?(?:::(?:Test\w+::)?(test_[^\s-]*))"
    listed = re.findall(pattern, done.stdout, re.M)
    return {name: outcome for outcome, name in listed}, done.stdout + done.stderr


EXPECTED = {
    "test_good": "PASSED", "test_shared_1[1.0]": "PASSED", "test_shared_1[2.0]": "PASSED", "test_shared_2": "PASSED",
    "test_bad_fixture": "FAILED", "test_bad": "FAILED", "test_method": "PASSED", "test_unit_good": "PASSED",
    "test_unit_bad": "FAILED", "test_loader": "PASSED", "test_nothing": "ERROR", "test_raises": "FAILED",
    "test_fails_then": "FAILED", "test_expected": "XFAIL", "test_async_good": "PASSED", "test_async_bad": "FAILED",
    "test_call": "PASSED",
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("words", [(), pytest.param(("-n", "2"), marks=pytest.mark.exhaustive)], ids=["alone", "xdist"])
def test_marked_tests_are_checked_with_their_fixtures(words: tuple[str, ...], tmp_path: Path) -> None:
    if words and find_spec("xdist") is None:
        pytest.skip("there is no xdist")
    found, said = outcomes(tmp_path, MARKED, *words)
    assert found == EXPECTED, said
    for wanted in (
        r"First difference: aten\.mul\.Tensor at test_it\.py:\d+",
        r"Suspect: unseeded-numpy-generator at test_it\.py:\d+: a NumPy generator was made without a seed",
        r"Fix: pass a seed where the generator is made",
        r"To confirm the cause: samerun check -- python -m pytest test_it\.py::TestCase::test_unit_bad",
        r"test_nothing computed nothing that could be compared",
        r"test_fails_then passed the first time and failed the second time, from the same seed 0",
        r"shared by both runs",
    ):
        assert re.search(wanted, said), f"{wanted}\n{said}"
    unseeded = (HEAD + MARKED).splitlines().index("    rng = np.random.default_rng()") + 1
    assert f"unseeded-numpy-generator at test_it.py:{unseeded}" in said
    assert "1 skipped" in said


def test_seeds_and_calls(tmp_path: Path) -> None:
    found, said = outcomes(tmp_path, SEEDS, "--samerun-seed", "5")
    passed = ["plain", "positional", "keyword", "none", "call", "async_call", "unmarked_keeps_its_streams"]
    failed = {"test_negative": "ERROR", "test_unknown": "ERROR", "test_bad_call": "FAILED"}
    assert found == {**{f"test_{name}": "PASSED" for name in passed}, **failed}, said
    assert "a seed is a whole number from 0" in said and "it was also given repeat=3" in said
    assert "computed something else the second time, from the same seed 5" in said


@pytest.mark.slow
def test_every_test_is_checked_if_asked(tmp_path: Path) -> None:
    found, said = outcomes(tmp_path, ALL, "--samerun")
    assert found == {"test_unmarked_bad": "FAILED", "test_words": "PASSED", "test_draws": "PASSED"}, said
    assert "samerun: 1 passed without a comparison" in said

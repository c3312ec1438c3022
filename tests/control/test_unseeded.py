"""Strict mode: unseeded generators and the system's entropy in the program's own code, and nobody else's."""

from __future__ import annotations

import copy
import json
import logging
import os
import pickle
import random
import secrets
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import samerun
from samerun.base.errors import UnseededError
from samerun.control.determinism import unseeded
from samerun.control.determinism.unseeded import start_reporting_unseeded_generators_and_entropy

HERE = Path(__file__).name

ASKS: dict[str, Callable[[], Any]] = {
    "default_rng": lambda: np.random.default_rng(),
    "RandomState": lambda: np.random.RandomState(),
    "PCG64": lambda: np.random.Generator(np.random.PCG64()),
    "MT19937": lambda: np.random.MT19937(),
    "SeedSequence": lambda: np.random.SeedSequence(),
    "numpy seed": lambda: np.random.default_rng(None),
    "numpy global": lambda: np.random.seed(),
    "Random": lambda: random.Random(),
    "Random seed": lambda: random.Random(3).seed(),
    "random seed": lambda: random.seed(),
    "urandom": lambda: os.urandom(4),
    "getrandom": lambda: os.getrandom(4),
    "token_hex": lambda: secrets.token_hex(4),
    "randbelow": lambda: secrets.randbelow(4),
    "SystemRandom": lambda: random.SystemRandom().random(),
    "uuid4": lambda: uuid.uuid4(),
    "torch seed": lambda: torch.seed(),
    "torch random seed": lambda: torch.random.seed(),
}

MAY: dict[str, Callable[[], Any]] = {
    "default_rng": lambda: np.random.default_rng(3).random(),
    "RandomState": lambda: np.random.RandomState(3).rand(),
    "mtrand": lambda: np.random.mtrand.RandomState(3).rand(),
    "RandomState of a generator": lambda: np.random.RandomState(np.random.MT19937(3)),
    "PCG64": lambda: np.random.Generator(np.random.PCG64(3)),
    "spawn": lambda: np.random.default_rng(3).spawn(2),
    "copy": lambda: (copy.deepcopy(np.random.default_rng(3)), copy.deepcopy(np.random.RandomState(3))),
    "pickle": lambda: pickle.loads(pickle.dumps((np.random.default_rng(3), np.random.RandomState(3)))),
    "Random": lambda: random.Random(3).random(),
    "random seed": lambda: random.seed(3),
    "uuid5": lambda: uuid.uuid5(uuid.NAMESPACE_DNS, "x"),
    "tempfile": lambda: tempfile.TemporaryFile().close(),
    "mkdtemp": lambda: os.rmdir(tempfile.mkdtemp()),
    "shuffle": lambda: random.shuffle([1, 2, 3]),
    "torch": lambda: torch.Generator().manual_seed(3),
}


@pytest.fixture(autouse=True)
def _streams_put_back() -> Iterator[None]:
    with samerun.isolate_rng():
        yield


@pytest.fixture
def strict() -> Iterator[None]:
    leave = start_reporting_unseeded_generators_and_entropy("error")
    yield
    leave()


@pytest.mark.parametrize("name", ASKS)
def test_it_is_refused_with_the_users_line_and_the_fix(name: str, strict: None) -> None:
    with pytest.raises(UnseededError) as caught:
        ASKS[name]()
    line = ASKS[name].__code__.co_firstlineno
    assert f"{HERE}:{line}: " in caught.value.message and caught.value.hint
    assert isinstance(caught.value, samerun.SamerunError)


@pytest.mark.parametrize("name", MAY)
def test_what_is_seeded_or_not_the_users_goes_on(name: str, strict: None) -> None:
    MAY[name]()


@pytest.mark.parametrize("name", ASKS)
def test_it_may_be_done_outside(name: str) -> None:
    start_reporting_unseeded_generators_and_entropy("error")()
    start_reporting_unseeded_generators_and_entropy("ignore")()
    ASKS[name]()


@pytest.mark.parametrize("name", ASKS)
def test_warn_says_so_and_goes_on(name: str, caplog: pytest.LogCaptureFixture) -> None:
    leave = start_reporting_unseeded_generators_and_entropy("warn")
    try:
        with caplog.at_level(logging.WARNING, "samerun"):
            ASKS[name]()
    finally:
        leave()
    assert f"{HERE}:{ASKS[name].__code__.co_firstlineno}: " in caplog.text


def names() -> list[Any]:
    own = [os.urandom, os.getrandom, random._urandom, random.seed, random.Random.seed, uuid.uuid4, torch.seed]  # type: ignore[attr-defined]
    return [*own, np.random.RandomState, np.random.mtrand.RandomState, np.random.bit_generator.randbits]


def test_nested_and_given_back() -> None:
    before = names()
    outer = start_reporting_unseeded_generators_and_entropy("error")
    inner = start_reporting_unseeded_generators_and_entropy("ignore")
    os.urandom(1)
    inner()
    inner()
    with pytest.raises(UnseededError):
        os.urandom(1)
    outer()
    assert all(one is other for one, other in zip(names(), before, strict=True)) and not unseeded._undo
    os.urandom(1)


def test_types_go_on_working(strict: None) -> None:
    made = np.random.RandomState(3)
    assert isinstance(made, np.random.RandomState) and isinstance(random.Random(3), random.Random)
    assert np.array_equal(made.rand(3), np.random.mtrand.RandomState(3).rand(3))
    assert issubclass(type(made), np.random.RandomState) and made.__class__.__name__ == "RandomState"

    class Own(random.Random):
        pass

    assert Own(3).random() == random.Random(3).random()
    with pytest.raises(UnseededError):
        Own()


def test_values_are_those_of_an_unwatched_program(strict: None) -> None:
    assert random.Random(3).random() == 0.23796462709189137
    assert np.random.default_rng(3).random() == np.random.Generator(np.random.PCG64(3)).random()
    random.seed(5)
    first = random.random()
    random.seed(5)
    assert random.random() == first


def test_sklearn_and_other_libraries_may_ask(strict: None, tmp_path: Path) -> None:
    """The same call from an installed package's file."""
    package = tmp_path / "site-packages" / "somelib.py"
    package.parent.mkdir()
    package.write_text("import os, uuid, random\ndef ask():\n    return os.urandom(4), uuid.uuid4(), random.Random()\n")
    scope: dict[str, Any] = {"__name__": "somelib"}
    exec(compile(package.read_text(), str(package), "exec"), scope)
    assert len(scope["ask"]()) == 3


PROGRAM = """
import json, sys, samerun
said = []
with samerun.deterministic(0, unseeded="error"):
    import multiprocessing, ssl, tempfile, threading, logging, uuid, secrets
    import numpy as np
    import torch
    from torch.utils.data import DataLoader
    list(DataLoader(range(4), num_workers=1, multiprocessing_context="fork"))
    with tempfile.NamedTemporaryFile() as file:
        torch.save(torch.rand(3), file.name)
    multiprocessing.Process(target=print).authkey
    ssl.create_default_context()
    multiprocessing.Queue()
    for ask in (np.random.default_rng, np.random.RandomState, uuid.uuid4, secrets.token_bytes):
        try:
            ask()
        except samerun.UnseededError as error:
            said.append(str(error).split(":")[:2])
np.random.default_rng()
print(json.dumps(said))
"""


@pytest.mark.slow
def test_a_whole_program_with_imports_inside(tmp_path: Path) -> None:
    program = tmp_path / "train.py"
    program.write_text(PROGRAM)
    done = subprocess.run(
        [sys.executable, "train.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONHASHSEED": "0"},
    )
    assert done.returncode == 0, done.stderr
    line = next(n for n, text in enumerate(PROGRAM.splitlines(), 1) if text.strip() == "ask()")
    assert json.loads(done.stdout) == [["train.py", str(line)]] * 4

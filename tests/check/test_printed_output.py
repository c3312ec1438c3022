"""What NumPy or plain Python compute reaches no operator: where only printed lines differ, they are compared."""

from __future__ import annotations

from pathlib import Path

import pytest
from check_command import check

from samerun.check.evidence.default_factories import move_to_default_factory_if_any
from samerun.check.evidence.situation import Suspect

WITHOUT_TORCH = """
import time
import numpy as np

start = time.time()
rows = np.arange(1000.0)
chosen = np.random.default_rng().choice(rows, 100)  # unseeded
print(f"mean {chosen.mean():.3f} after {time.time() - start} seconds")
"""
EVALUATION = """
import numpy as np
import torch

torch.manual_seed(0)
x = torch.randn(100, 3)
right = (torch.nn.Linear(3, 1)(x)[:, 0] > 0).numpy()
words = [f"word {i * 7 % 13}" for i in range(100)]
numbers = {word: number for number, word in enumerate(set(words))}  # set
chosen = np.random.default_rng(0 if SEEDED else None).choice(100, 50)  # unseeded
score = (right * [numbers[word] for word in words]).sum() if BY_SET else right[chosen].sum()
print(f"score {score / 50:.3f}")
"""
NAMES = """
import os, resource, tempfile, time, uuid
import numpy as np
import torch

start = time.perf_counter()
torch.manual_seed(0)
x = torch.randn(100, 3)
unseeded = np.random.default_rng()
print("run", uuid.uuid4().hex[:8], unseeded.integers(1000), os.getpid(), object(), tempfile.mkdtemp(), os.getcwd())
print(f"memory {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.1f} MB")
print(f"mean {x.mean().item():.4f} after {time.perf_counter() - start:.3f} s")
print(f"{1 / (time.perf_counter() - start):.1f} it/s")
"""


def line_of(mark: str, program: str) -> int:
    return next(number for number, line in enumerate(program.splitlines(), 1) if line.endswith(f"# {mark}"))


def run_check(program: str, tmp_path: Path) -> tuple[int, dict]:
    (tmp_path / "train.py").write_text(program, encoding="utf-8")
    return check(["train.py"], tmp_path)


def test_a_program_without_torch_is_checked_by_what_it_prints(tmp_path: Path) -> None:
    code, report = run_check(WITHOUT_TORCH, tmp_path)
    cause = report["cause"]
    assert (code, report["first_difference"]["operator"]) == (1, "printed line")
    assert (cause["kind"], cause["line"], cause["certain"]) == (
        "unseeded-numpy-generator", line_of("unseeded", WITHOUT_TORCH), True,
    )  # fmt: skip
    assert report["notes"][0].startswith("Only printed lines differ: one run prints 'mean "), report["notes"]


CLOCK_SEED = """
import random, time
import numpy as np

start = time.time()
GENERATOR = SEEDED
print("mean", sum(GENERATOR.random() for _ in range(9)))
print("took", time.time() - start, "since", start)
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    "seeded",
    [
        "np.random.default_rng(time.time_ns())",
        "random.Random(time.time())",
        "(random.seed(time.time_ns()), random)[1]",
    ],
)
def test_a_seed_from_the_clock_makes_a_printed_number_a_result(seeded: str, tmp_path: Path) -> None:
    program = CLOCK_SEED.replace("SEEDED", seeded)
    code, report = run_check(program, tmp_path)
    cause = report["cause"]
    assert (code, cause["kind"], cause["line"], cause["certain"]) == (1, "time", 6, True)


@pytest.mark.slow
def test_numbers_of_a_clock_beside_a_fixed_seed_are_no_result(tmp_path: Path) -> None:
    code, report = run_check(CLOCK_SEED.replace("SEEDED", "random.Random(7)"), tmp_path)
    assert (code, report["verdict"]) == (0, "same"), report


@pytest.mark.exhaustive
def test_names_times_and_memory_in_printed_lines_are_no_difference(tmp_path: Path) -> None:
    code, report = run_check(NAMES, tmp_path)
    assert (code, report["verdict"]) == (0, "same"), report


@pytest.mark.slow
@pytest.mark.parametrize(
    ("seeded", "by_set", "kind"),
    [
        pytest.param(False, False, "unseeded-numpy-generator", marks=pytest.mark.exhaustive),
        pytest.param(True, True, "hash-order", marks=pytest.mark.exhaustive),
        (True, False, ""),
    ],
)
def test_a_printed_score_is_compared_where_the_model_is_the_same(
    seeded: bool, by_set: bool, kind: str, tmp_path: Path
) -> None:
    program = EVALUATION.replace("SEEDED", str(seeded)).replace("BY_SET", str(by_set))
    code, report = run_check(program, tmp_path)
    if not kind:
        assert (code, report["verdict"]) == (0, "same"), report
        return
    line = line_of("set" if by_set else "unseeded", program)
    assert (code, report["cause"]["kind"], report["cause"]["line"], report["cause"]["certain"]) == (1, kind, line, True)


@pytest.mark.slow
def test_a_generator_that_a_dataclass_makes_is_named_at_its_field(tmp_path: Path) -> None:
    program = """\
from dataclasses import dataclass, field
import random

@dataclass
class Jitter:
    scale: float = 0.1
    rng: random.Random = field(default_factory=random.Random)  # unseeded

@dataclass
class Flip:
    rng: random.Random = field(default_factory=lambda: random.Random(3))

parts = [Flip(), Jitter(0.5)]
print("mean", sum(part.rng.random() for part in parts) / 2)
"""
    code, report = run_check(program, tmp_path)
    cause = report["cause"]
    assert (code, cause["kind"], cause["line"], cause["certain"]) == (
        1, "unseeded-python", line_of("unseeded", program), True,
    )  # fmt: skip


FIELDS = """\
import time
from dataclasses import dataclass, field

@dataclass
class Data:
    seed: int = field(default_factory=time.time_ns)  # seed

@dataclass
class Unused:
    begun: float = field(default_factory=time.time)

@dataclass
class Run:
    data: Data = field(default_factory=Data)
MORE
"""


def move_in(folder: Path, more: str) -> Suspect:
    (folder / "conf").mkdir(parents=True)
    (folder / "conf" / "schema.py").write_text(FIELDS.replace("MORE", more), encoding="utf-8")
    (folder / "train.py").write_text("from conf.schema import Run\n\nrun = Run()\n", encoding="utf-8")
    suspect = Suspect("time", str(folder / "train.py"), 3, (), 0, certain=True)
    return move_to_default_factory_if_any(suspect, ())


def test_a_clock_that_a_nested_dataclass_reads_is_named_at_its_field(tmp_path: Path) -> None:
    moved = move_in(tmp_path / "one", "")
    assert (Path(moved.file).name, moved.line, moved.certain) == ("schema.py", line_of("seed", FIELDS), True)
    both = move_in(tmp_path / "two", "    started: float = field(default_factory=time.time)")
    assert (Path(both.file).name, both.line, both.certain) == ("train.py", 3, False)
    assert "schema.py:6, schema.py:15" in both.evidence[-1]


def test_a_reading_under_another_name_is_not_taken_for_that_of_a_field_elsewhere(tmp_path: Path) -> None:
    move_in(tmp_path, "")
    (tmp_path / "train.py").write_text("from time import time as now\nfrom conf.schema import Run\nbegun = now()\n")
    suspect = Suspect("time", str(tmp_path / "train.py"), 3, (), 0, certain=True)
    assert move_to_default_factory_if_any(suspect, ()) == suspect


@pytest.mark.exhaustive
def test_a_seed_that_a_field_of_another_file_reads_from_the_clock_is_certain(tmp_path: Path) -> None:
    move_in(tmp_path, "")
    with open(tmp_path / "train.py", "a", encoding="utf-8") as file:
        file.write("import torch\ntorch.manual_seed(run.data.seed % 100003)\nprint(torch.rand(9).shape)\n")
    code, report = check(["--vary", "rerun", "train.py"], tmp_path)
    cause = report["cause"]
    assert (code, cause["kind"], cause["file"], cause["line"], cause["certain"]) == (
        1, "time", "conf/schema.py", line_of("seed", FIELDS), True,
    )  # fmt: skip
    assert len(report["runs"]) < 20


ARRIVING = """
import math, multiprocessing, time
import torch

def work(n):
    start, total = time.perf_counter(), 0.0
    for k in range(20000 * (1 + n * 7 % 5)):
        total += math.sin(k * n)
    return total / 1000, time.perf_counter() - start

if __name__ == "__main__":
    torch.manual_seed(0)
    start, smooth = time.time(), 0.0
    with multiprocessing.get_context("spawn").Pool(3) as pool:
        for value, took in pool.imap_unordered(work, range(1, 30)):  # arrives
            smooth = 0.9 * smooth + 0.1 * value
    print(f"took {time.time() - start:.3f}")
    print(f"final {smooth:.10f} {torch.ones(4).sum().item()}")
"""


@pytest.mark.exhaustive
@pytest.mark.parametrize("taken", ["imap_unordered", "imap"])
def test_numbers_that_come_in_another_order_count_beside_durations(taken: str, tmp_path: Path) -> None:
    program = ARRIVING.replace("imap_unordered", taken)
    for _ in range(3):  # the order may be the same twice
        code, report = run_check(program, tmp_path)
        if code == 1 or taken == "imap":
            break
    if taken == "imap":
        assert (code, report["verdict"]) == (0, "same"), report
    else:
        cause = report["cause"]
        assert (code, cause["kind"], cause["line"]) == (1, "async-order", line_of("arrives", program)), report

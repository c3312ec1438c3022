"""Causes that only an experiment can confirm: their source is held still, and the difference goes."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
from check_command import check
from watched_program import run

from samerun.check.attribution.confirmation import compute_required_pinned_reruns
from samerun.check.evidence.situation import Suspect
from samerun.check.search.run_status import limit_time_of_experiment
from samerun.record import pins
from samerun.record.pins import PINNED_CLOCK_START

BEGIN = "import os, torch\nx = torch.ones(64)\n"
END = "print(x.relu().shape)\n"

PROGRAMS = {
    "thread-race": (
        "import threading\n" + BEGIN + "def add(n):\n    for i in range(300):\n        x.mul_(1.0001 * n).add_(n)\n"
        "threads = [threading.Thread(target=add, args=(n,)) for n in (0.5, 0.7, 0.9)]\n"
        "[t.start() for t in threads], [t.join() for t in threads]\n" + END, 6,
    ),
    "async-order": (
        "import time, random\nfrom concurrent.futures import ThreadPoolExecutor, as_completed\n" + BEGIN +
        "def wait(n):\n    time.sleep(random.SystemRandom().random() / 50)\n    return n\n"
        "with ThreadPoolExecutor(8) as pool:\n    tasks = [pool.submit(wait, n) for n in range(8)]\n"
        "    for task in as_completed(tasks):\n        x = x * 3 + task.result()\n" + END, 10,
    ),
    "async-order pool": (
        "import os, torch, time, random\nfrom multiprocessing import Pool\n"
        "def wait(n):\n    time.sleep(random.SystemRandom().random() / 50)\n    return n\n"
        "if __name__ == '__main__':\n    x = torch.ones(64)\n    with Pool(4) as pool:\n"
        "        for n in pool.imap_unordered(wait, range(8)):\n            x = x * 3 + n\n    print(x.relu().shape)\n",
        9,
    ),
    "async-order of tasks with one generator": (
        "import time, random\nfrom concurrent.futures import ThreadPoolExecutor, as_completed\n" + BEGIN +
        "random.seed(0)\ndef wait(n):\n    time.sleep(random.random() / 50)\n    return n\n"
        "with ThreadPoolExecutor(8) as pool:\n    tasks = [pool.submit(wait, n) for n in range(24)]\n"
        "    for task in as_completed(tasks):\n        x = (x * 3 + task.result()) % 7\n" + END, 11,
    ),
    "thread-race of tasks with one generator": (
        "import time, random\nfrom concurrent.futures import ThreadPoolExecutor, as_completed\n" + BEGIN +
        "random.seed(0)\ndef draw(n):\n    time.sleep(random.SystemRandom().random() / 100)\n"
        "    return random.random() * n\n"
        "with ThreadPoolExecutor(8) as pool:\n    tasks = [pool.submit(draw, n) for n in range(24)]\n"
        "    for task in as_completed(tasks):\n        x = (x * 3 + task.result()) % 7\n" + END, 8,
    ),
    "extra-draw": (
        "import time\n" + BEGIN + "torch.manual_seed(0)\nfor step in range(4):\n    x = x + torch.rand(64)\n"
        "    if step == 1 and time.time_ns() // 1000 % 2:\n        preview = torch.rand(2)\n" + END, 8,
    ),
    "object-id of what draws": (
        BEGIN + "class Noise:\n    def add(self, x):\n        return x + torch.rand(4)\n"
        "class Scale:\n    def add(self, x):\n        return x * torch.randn(2, 4)[0]\n"
        "torch.manual_seed(0)\nparts = {kind() for kind in (Noise, Scale) * 150}\nx = x[:4]\n"
        "for part in parts:\n    x = part.add(x)\n" + END, 12,
    ),
    "data-changed": (
        BEGIN + "if os.path.exists('state.pt'):\n    x = x * 2\ntorch.save(x, 'state.pt')\n" + END, 3,
    ),
    "thread-race generator": (
        "import threading, time\n" + BEGIN + "torch.manual_seed(0)\ndef prepare():\n    for _ in range(40):\n"
        "        noise = torch.rand(3)\n        time.sleep(0.001)\n"
        "thread = threading.Thread(target=prepare)\nthread.start()\nfor _ in range(40):\n    x = x + torch.rand(64)\n"
        "thread.join()\n" + END, 7,
    ),
    "thread-race of draws beside models that are trained in threads": (
        "import threading, numpy as np\n" + BEGIN + "np.random.seed(0)\ndef train(model):\n    for _ in range(30):\n"
        "        rows = torch.from_numpy(np.random.randint(0, 64, 64))\n"
        "        with torch.no_grad():\n            model.mul_(0.9).add_(x[rows] * rows)\n"
        "models = [torch.zeros(64) for _ in range(4)]\n"
        "threads = [threading.Thread(target=train, args=(model,)) for model in models]\n"
        "[t.start() for t in threads], [t.join() for t in threads]\nprint(sum(models).relu().shape)\n", 7,
    ),
    "time deadline": (
        "import time\n" + BEGIN + "until = time.time() + 0.2\nwhile time.time() < until:\n    x = x * 1.01\n" + END, 5,
    ),
    "time of the processor": (
        "import resource\n" + BEGIN + "def spent():\n    usage = resource.getrusage(resource.RUSAGE_SELF)\n"
        "    return usage.ru_utime + usage.ru_stime\nuntil = spent() + 0.2\nwhile spent() < until:\n    x = x * 1.01\n"
        + END, 5,
    ),
    "os-entropy": (BEGIN + "number = os.getpid()\nx = x * number\n" + END, 3),
    "os-entropy name": (
        "import tempfile\n" + BEGIN + "name = tempfile.mkdtemp(dir='.')\nos.rmdir(name)\n"
        "x = x + torch.tensor([ord(c) for c in name]).sum()\n" + END, 4,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", sorted(PROGRAMS))
@pytest.mark.exhaustive
def test_a_source_that_is_held_still_confirms_the_cause(name: str, tmp_path: Path) -> None:
    program, line = PROGRAMS[name]
    (tmp_path / "program.py").write_text(program)
    for _ in range(4):  # a coin decides some of them: the same side twice is no difference
        code, report = check(["--vary", "rerun,hash_seed,listing_order,memory", "program.py"], tmp_path)
        if code == 1:
            break
    assert code == 1
    cause = report["cause"]
    assert (cause["kind"], cause["line"], cause["certain"]) == (name.split()[0], line, True), cause


@pytest.mark.exhaustive
def test_how_often_it_differs_is_said(tmp_path: Path) -> None:
    program = (
        "import os, torch\nruns = len(os.listdir('.'))\nopen(f'run{runs}', 'w').close()\n"
        "x = torch.ones(3) * (2 if runs == 3 else 1)\n"
    )
    (tmp_path / "program.py").write_text(program + "print(x.relu().shape)\n")
    code, report = check(["--vary", "rerun", "--repeat", "4", "program.py"], tmp_path)
    assert code == 1
    assert "differed in 1 of 3 repeats" in report["variations"][0]["detail"]


def test_a_clock_that_is_held_at_one_line_is_in_step_with_the_others(tmp_path: Path) -> None:
    program = """\
import time
until = time.monotonic() + 0.5
rounds = 0
while time.monotonic() < until:
    rounds += 1
print(rounds, time.time() - time.monotonic(), time.time_ns() // 10**9 - int(time.time()))
"""
    pin = f"clock@{tmp_path / 'program.py'}:4"
    rounds, apart, seconds = run(program, tmp_path, pins=(pin,), clock_tick=0.01).stdout.split()
    assert 40 < int(rounds) < 2000  # it ends: both lines know the same present
    assert abs(float(apart)) < 2 and int(seconds) in (0, -1)


def test_processor_time_is_a_clock_that_can_be_held(tmp_path: Path) -> None:
    program = """\
import os, resource, sys, time
for _ in range(200000):
    pass
usage, times = resource.getrusage(resource.RUSAGE_SELF), os.times()
print(usage.ru_utime + usage.ru_stime, times.user + times.system, times[4])
print(time.clock_gettime(time.CLOCK_MONOTONIC), time.clock_gettime_ns(time.CLOCK_PROCESS_CPUTIME_ID))
print(type(usage).__name__, usage.ru_maxrss > 1000, type(times).__name__, file=sys.stderr)
"""
    held, again, free = (
        run(program, tmp_path / str(number), pins=pins) for number, pins in enumerate((("clock",), ("clock",), ()))
    )
    assert held.stdout == again.stdout != free.stdout
    assert held.stderr.split() == ["struct_rusage", "True", "times_result"]
    here = f"clock@{tmp_path / 'other' / 'program.py'}:1"
    beside = [float(number) for number in run(program, tmp_path / "other", pins=(here,)).stdout.split()[:4]]
    assert all(0 <= now - PINNED_CLOCK_START < 60 for now in beside)


@pytest.mark.exhaustive
def test_sources_that_are_held_at_one_line_are_free_at_others(tmp_path: Path) -> None:
    program = """\
import os, random, torch, uuid
print(os.urandom(8), uuid.uuid4(), random.Random().random(), torch.Generator().seed())
print(os.urandom(8), uuid.uuid4(), random.Random().random(), torch.Generator().seed())
"""
    names = ("entropy", "python-generator", "torch-generator")
    outcomes = []
    for folder in ("one", "other"):
        pins = tuple(f"{name}@{tmp_path / folder / 'program.py'}:3" for name in names)
        outcomes.append(run(program, tmp_path / folder, pins=pins).stdout.splitlines())
    (free, held), (free_again, held_again) = outcomes
    assert held == held_again
    assert not set(free.split()) & set(free_again.split())


def test_temporary_names_are_the_same_although_an_earlier_run_left_its_files(tmp_path: Path) -> None:
    program = """\
import os, tempfile
folder = tempfile.mkdtemp(dir="..", prefix="run-")
open(os.path.join(folder, "model"), "w").close()
other = tempfile.NamedTemporaryFile(dir="..", delete=False)
print(folder, other.name, sorted(os.listdir(folder)))
"""
    (tmp_path / "here").mkdir()
    names = set()
    for number in range(3):
        folder = tmp_path / "here" / "work"  # the traces of all runs of a check lie side by side
        names.add(run(program, folder, pins=("entropy",)).stdout)
        folder.rename(tmp_path / "here" / f"done-{number}")
    assert len(names) == 1


def test_draws_that_are_free_at_one_line_leave_the_others_as_they_are(tmp_path: Path) -> None:
    program = """\
import numpy, random
random.seed(1), numpy.random.seed(1)
words = list("abcdefghijklmnop")
random.shuffle(words)
print("".join(words), numpy.random.permutation(12), random.random(), numpy.random.rand())
print(random.random(), numpy.random.rand())
"""
    outcomes = []
    for folder in ("one", "other"):
        pins = tuple(f"free@{tmp_path / folder / 'program.py'}:{line}" for line in (4, 5))
        outcomes.append(run(program, tmp_path / folder, pins=pins).stdout.splitlines())
    usual = run(program, tmp_path / "usual").stdout.splitlines()
    (free, kept), (free_again, kept_again) = outcomes
    assert kept == kept_again == usual[1]
    assert len({free.split()[0], free_again.split()[0], usual[0].split()[0]}) == 3
    assert len({free.split()[-1], free_again.split()[-1], usual[0].split()[-1]}) == 3


@pytest.mark.parametrize(
    ("labels", "asked", "limit"),
    [
        (("pin:time",), None, 160.0),
        (("pin:time",), 40.0, 40.0),
        (("lines",), None, 560.0),
        (("hash_seed",), None, None),
        ((), 40.0, 40.0),
    ],
)
def test_an_experiment_has_a_limit(labels: tuple[str, ...], asked: float | None, limit: float | None) -> None:
    assert limit_time_of_experiment(asked, 10.0, labels) == limit


@pytest.mark.exhaustive
def test_memory_that_only_an_operator_reads_is_named(tmp_path: Path) -> None:
    """`lstsq` takes its pivots from memory that nothing wrote; what others left there is another thing in each run."""
    program = (
        "import os, torch\na, b = torch.eye(300, 200) + 0.01, torch.ones(300, 2)\na = a + torch.arange(200) / 400\n"
        "left = [bytearray(b for byte in os.urandom(1250) for b in (byte & 1, 0, 0, 0)) for _ in range(40)]\n"
        "del left[:-1]\n"
        "x = torch.linalg.lstsq(a, b).solution\nprint(x.relu().shape)\n"
    )
    (tmp_path / "program.py").write_text(program)
    code, report = check(["--vary", "rerun", "program.py"], tmp_path, OMP_NUM_THREADS="1")
    assert code == 1
    cause = report["cause"]
    assert (cause["kind"], cause["line"], cause["certain"]) == ("uninitialised-memory", 6, True), cause


@pytest.mark.parametrize(
    ("suspect", "differing", "runs"),
    [
        (Suspect("time", "p.py", 3, (), 5.4, (pins.CLOCK,)), 3, 3),  # compared with another reading: few outcomes
        (Suspect("time", "p.py", 3, (), 1.3, (pins.CLOCK,)), 3, 1),  # a seed: never the same twice
        (Suspect("time", "p.py", 3, (), 5.4, (pins.CLOCK,)), 1, 8),
        (Suspect("os-entropy", "p.py", 3, (), 3.4, (pins.ENTROPY,)), 3, 1),
        (Suspect("uninitialised-memory", "p.py", 3, (), 0.5, (pins.MEMORY,)), 3, 3),
    ],
)
def test_what_two_runs_may_have_in_common_by_chance_is_held_more_often(
    suspect: Suspect, differing: int, runs: int
) -> None:
    assert compute_required_pinned_reruns(SimpleNamespace(reruns=3, differing_rerun_count=differing), suspect) == runs  # type: ignore[arg-type]

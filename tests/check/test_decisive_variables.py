"""Of several lines where runs differ, the one is named that results depend on; if that is open, none is certain."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from check_command import LINE_TOLERANCE, check

from samerun.check.attribution import variable_experiments
from samerun.check.attribution.variable_experiments import VariableExperiments, rerun_and_find_decisive_seed
from samerun.check.evidence.line_search import DifferingVariable
from samerun.check.evidence.situation import Suspect
from samerun.check.plan import RunPlan
from samerun.record.config import WatchConfig
from samerun.record.watching.held_variables import NOT_HELD

BEGIN = """
import json
import os
import random
import tempfile
import torch
torch.manual_seed(0)
words = "one two three four five six seven".split()
"""
END = """
model = torch.nn.Linear(len(numbers), 1)
loss = model(torch.tensor(numbers, dtype=torch.float)).sum()
loss.backward()
torch.optim.SGD(model.parameters(), lr=0.1).step()
"""
TRAINER = """
class Trainer:
    def __init__(self, tag):
        self.name = f"{tag}-{hash(tag)}"
        self.log = []
    def number(self, words):
        index = {}
        for word in set(words):  # WRONG
            index[word] = len(index)
        self.log.append(self.name)
        return [index[word] for word in words]
numbers = Trainer("base").number(words)
"""
PROGRAMS = {
    "the name of a run": """
run_name = f"exp-{hash('base')}"
folder = os.path.join(tempfile.gettempdir(), run_name)
print(folder)
vocabulary = list(set(words))  # WRONG
numbers = [vocabulary.index(word) for word in words]
""",
    "an attribute": TRAINER,
    "what a function returns": """
def bucket(word):
    return hash(word) % 8  # WRONG
banner = "|".join(set(words))
print(banner, bucket("shown"))
numbers = [bucket(word) for word in sorted(words)]
""",
    "a seed for colours": """
colour = random.Random(hash("colour")).random()
print(colour)
order = list(set(words))  # WRONG
numbers = [len(word) for word in order]
""",
    "a seed below another": """
colour = random.Random(hash("colour")).random()
print(colour)
draw = random.Random(hash("data"))  # WRONG
numbers = [draw.random() for word in words]
""",
}
WRITTEN = """
path = os.path.join(tempfile.mkdtemp(), "vocabulary.json")
with open(path, "w") as file:
    json.dump([*set(words)], file)  # WRONG
with open(path) as file:
    vocabulary = json.load(file)
numbers = [vocabulary.index(word) for word in words]
"""


READ = {
    "a clock in another module": ("""
import time
from seeding import fresh_seed
started = time.time()
torch.manual_seed(fresh_seed())
numbers = torch.rand(7).tolist()
print(time.time() - started)
""", "import time\n\n\ndef fresh_seed():\n    return time.time_ns() % 2**32  # WRONG\n", "time"),
    "bytes of the system below a UUID": ("""
import uuid
from seeding import noise
name = uuid.uuid4().hex
numbers = noise(7)
print(name)
""", "import os\n\n\n\ndef noise(count):\n    return list(os.urandom(count))  # WRONG\n", "os-entropy"),
    "a shuffle below a code name": ("""
from seeding import shuffled
name = f"{random.choice(words)}-{random.randint(0, 999)}"
print(name)
numbers = shuffled(7)
""", "import random\n\n\ndef shuffled(count):\n    numbers = list(range(count))\n"
     "    random.shuffle(numbers)  # WRONG\n    return numbers\n", "unseeded-python"),
}  # fmt: skip


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", READ)
def test_what_another_module_reads_or_draws_is_named_there(name: str, tmp_path: Path) -> None:
    program, module, kind = READ[name]
    (tmp_path / "train.py").write_text(BEGIN + program + END)
    (tmp_path / "seeding.py").write_text(module.replace("  # WRONG", ""))
    wrong = next(n for n, line in enumerate(module.splitlines(), 1) if "# WRONG" in line)
    _, report = check(["--vary", "rerun,hash_seed,listing_order,memory", "train.py"], tmp_path, OMP_NUM_THREADS="1")
    cause = report["cause"]
    assert (cause["kind"], cause["file"], cause["line"], cause["certain"]) == (kind, "seeding.py", wrong, True), cause


ZONE = """
import datetime
print("zone", os.environ.get("TZ", "none"))
numbers = [datetime.datetime.fromtimestamp(10_000 * n).hour for n in range(7)]  # WRONG
"""
THREADS = """
count = torch.get_num_threads()  # WRONG
torch.manual_seed(count)
numbers = torch.rand(7).tolist()
"""
PARTS = """
parts = torch.get_num_threads()  # WRONG
numbers = [float(part.sum() * (n + 1)) for n, part in enumerate(torch.arange(12.0).chunk(parts))]
"""
TERMINAL = """
print("user", os.environ["USER"])
torch.manual_seed(len(os.environ["TERM"]))  # WRONG
numbers = torch.rand(7).tolist()
"""


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("program", "variation", "kind"),
    [
        (ZONE, "timezone", "environment-variable"),  # it is printed before
        (TERMINAL, "environment_noise", "environment-variable"),
        (THREADS, "threads", "thread-count"),  # no operator rounds otherwise
        (PARTS, "threads", "thread-count"),
    ],
)
def test_settings_of_the_machine_are_named_where_results_depend_on_them(
    program: str, variation: str, kind: str, tmp_path: Path
) -> None:
    distance, cause = line_of_cause(program, tmp_path, kind, f"rerun,{variation}")
    assert (distance, cause["certain"]) == (0, True), cause


def line_of_cause(
    program: str, folder: Path, kind: str = "hash-order", varied: str = "rerun,hash_seed"
) -> tuple[int, dict[str, Any]]:
    """How far from the line with the hazard the report names one, and the cause."""
    text = BEGIN + program + END
    (folder / "train.py").write_text(text.replace("  # WRONG", ""))
    wrong = next(n for n, line in enumerate(text.splitlines(), 1) if "# WRONG" in line)
    _, report = check(["--vary", varied, "train.py"], folder, OMP_NUM_THREADS="2")
    assert report["cause"]["kind"] == kind, report
    return abs(report["cause"]["line"] - wrong), report["cause"]


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", PROGRAMS)
def test_the_line_that_results_depend_on_is_certain(name: str, tmp_path: Path) -> None:
    distance, cause = line_of_cause(PROGRAMS[name], tmp_path)
    assert (distance, cause["certain"]) == (0, True), cause


@pytest.mark.exhaustive
def test_what_was_read_back_from_a_file_is_named_where_it_was_written(tmp_path: Path) -> None:
    distance, cause = line_of_cause(WRITTEN, tmp_path)
    assert distance <= LINE_TOLERANCE and not cause["certain"], cause


# --- the decisions, with programs that are none: what differs, what can be held, and what the results depend on
class Variables:
    """Runs of a program with variables that differ. `causes`: those that the results depend on."""

    def __init__(self, differing: str, causes: str, cannot_be_held: str = "") -> None:
        self.differing, self.causes, self.cannot_be_held = differing, causes, cannot_be_held

    def run_and_record(self, plan: RunPlan, name: str, labels: tuple[str, ...] = ()) -> Any:
        watch = plan.watch.held_variables
        names = "" if watch is None or watch.keep else "".join(name for _, _, name in watch.variables)
        if watch is not None and set(names) & set(self.cannot_be_held):
            (Path(watch.folder) / NOT_HELD).touch()
        return SimpleNamespace(plan=plan, exit_code=0, held=names, traces=SimpleNamespace(traces={}, main=None))

    def compare_runs(self, a: Any, b: Any) -> Any:
        return None if set(self.causes) <= set(b.held) else SimpleNamespace(role="main", thread=0, ordinal=5)


def find(folder: Path, monkeypatch: pytest.MonkeyPatch, differing: str, causes: str, cannot_be_held: str = "") -> Any:
    """(name, certain, rivals) of the decisive variable; None if there is none."""
    program = Variables(differing, causes, cannot_be_held)

    def first(a: Any, b: Any, passed_over: Any = (), role: str = "main") -> DifferingVariable | None:
        left = [name for name in differing if name not in b.held and name not in {v.variable for v in passed_over}]
        line = differing.index(left[0]) + 1 if left else 0
        return DifferingVariable("train.py", line, left[0], (("train.py", line, left[0]),)) if left else None

    monkeypatch.setattr(variable_experiments, "find_first_differing_variable", first)
    monkeypatch.setattr(variable_experiments, "variable_may_affect_results", lambda *_: True)
    difference = SimpleNamespace(role="main", thread=0, ordinal=5, event=None)
    situation: Any = SimpleNamespace(a=SimpleNamespace(folder=folder / "a"), difference=difference)
    plan = RunPlan(("x",), ("x",), WatchConfig(folder=""))
    experiments = VariableExperiments(program, situation, (plan, plan))  # type: ignore[arg-type]
    runs = program.run_and_record(plan, "a"), program.run_and_record(plan, "b")
    found = experiments.rerun_and_find_decisive_variable(runs)
    return found and (found.variable.variable, found.certain, "".join(v.variable for v in found.rivals))


@pytest.mark.parametrize(
    ("differing", "causes", "cannot_be_held", "expected"),
    [
        ("n", "n", "", ("n", True, "")),
        ("nv", "v", "", ("v", True, "")),  # the name is innocent
        ("nmv", "v", "", ("v", True, "")),
        ("nv", "nv", "", ("v", False, "n")),  # both are needed: neither is named for certain
        ("ov", "v", "o", ("v", False, "o")),  # what cannot be held may be the cause
        ("o", "o", "o", ("o", False, "")),
        ("n", "x", "", None),  # the difference does not come from a variable
    ],
)
def test_a_variable_is_certain_only_if_it_alone_makes_the_difference(
    differing: str, causes: str, cannot_be_held: str, expected: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert find(tmp_path, monkeypatch, differing, causes, cannot_be_held) == expected


@pytest.mark.parametrize(("culprit", "expected"), [("1", 1), ("2", 2), ("none", None)])
def test_a_seed_is_decisive_if_the_difference_goes_when_it_is_fixed(culprit: str, expected: int | None) -> None:
    class Program:
        def run_and_record(self, plan: RunPlan, name: str, labels: tuple[str, ...] = ()) -> Any:
            return SimpleNamespace(pins=plan.watch.pins)

        def compare_runs(self, a: Any, b: Any) -> Any:
            fixed = any(pin.endswith(f":{culprit}") for pin in b.pins)
            return None if fixed else SimpleNamespace(role="main", thread=0, ordinal=5)

    run = SimpleNamespace(plan=RunPlan(("x",), ("x",), WatchConfig(folder="")))
    difference = SimpleNamespace(role="main", thread=0, ordinal=5)
    situation: Any = SimpleNamespace(a=run, b=run, difference=difference)
    suspects = [Suspect("hash-order", "t.py", n, (), 0, (f"seed@t.py:{n}",)) for n in (1, 2)]
    found = rerun_and_find_decisive_seed(Program(), situation, suspects)  # type: ignore[arg-type]
    assert (found and found.line) == expected

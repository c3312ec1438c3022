"""Every variation: a pure function; it catches a program that depends on it alone, and names the cause."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from check_command import check, samerun

from samerun.check.plan import RunPlan
from samerun.check.variations import folder_copies, processes
from samerun.check.variations.table import GROUPS, VARIATIONS, parse_vary_option
from samerun.record.comparison.streams import IGNORE_CHILDREN, IGNORE_DATA_LOADING, ONLY_RANK_0, is_process_compared
from samerun.record.config import WatchConfig

BEGIN = "import os, torch\nx = torch.ones(8, 4)\n"
END = "print(float(torch.nn.functional.relu(x).sum()) > 0)\n"
DATA = """
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset

class Items(Dataset):
    def __init__(self):
        self.rng = torch.Generator().manual_seed(3)
    def __len__(self):
        return 12
    def __getitem__(self, i):
        BODY

class Stream(IterableDataset):
    def __iter__(self):
        for i in range(6):
            yield torch.full((2,), float(i))

torch.multiprocessing.set_start_method("fork")  # Python 3.14 chooses another
torch.manual_seed(0)
x = torch.zeros(2)
for batch in DataLoader(DATASET, batch_size=3, num_workers=WORKERS):
    x = x + torch.nn.functional.relu(batch).sum(0)
print(x.shape)
"""


def data(body: str, dataset: str = "Items()", workers: int = 0) -> str:
    return DATA.replace("BODY", body).replace("DATASET", dataset).replace("WORKERS", str(workers))


SPAWNED = """
import multiprocessing as mp
import torch

held = {"n": 1}

def work(queue):
    queue.put(held["n"])

if __name__ == "__main__":
    held["n"] = 2
    queue = mp.Queue()
    process = mp.Process(target=work, args=(queue,))
    process.start()
    x = torch.ones(3) * queue.get()
    process.join()
    print(x.relu().sum().item())
"""

LEAKS = {
    "address_layout": (BEGIN + "x = x * float(id(x) >> 24)\n" + END, "object-id", 3),
    "allocator": (BEGIN + "x = x * (1 + len(os.environ.get('PYTHONMALLOC', '')))\n" + END, "environment-variable", 3),
    "environment_noise": (BEGIN + "x = x * len(os.environ['TERM'])\n" + END, "environment-variable", 3),
    "working_directory": (BEGIN + "where = len(os.getcwd())\nx = x * where\n" + END, "environment-variable", 3),
    "home": (BEGIN + "x = x * len(os.path.expanduser('~'))\n" + END, "environment-variable", 3),
    "umask": (
        BEGIN + "if os.path.lexists('f'): os.remove('f')\nopen('f', 'w').close()\nmode = os.stat('f').st_mode\n"
        "os.remove('f')\nx = x * mode\n" + END, "environment-variable", 5,
    ),
    "workers": (data("return torch.randn(2)"), "worker-count", 11),
    "workers-own": (data("return torch.randn(2, generator=self.rng)", workers=1), "worker-seed", 7),
    "workers-stream": (data("pass", "Stream()", workers=1), "worker-count", 15),
    "process_start": (SPAWNED, "worker-seed", 14),
    "cpu_capability": (BEGIN + "torch.manual_seed(0)\nw = torch.rand(64, 300)\nx = (w @ w.T).mean(0).tanh()\n" + END,
                       "cpu-capability", 5),
    "threads": (BEGIN + "x = torch.arange(300_000).float().reciprocal().sin()\n"
                "x = torch.stack([x[i:].sum() for i in range(1, 20)])\n" + END, "thread-count", 4),
}  # fmt: skip
CLEAN = data("return torch.full((2,), float(i))", workers=1)


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", sorted(LEAKS))
def test_a_variation_catches_what_leaks_only_it(name: str, tmp_path: Path) -> None:
    program, kind, line = LEAKS[name]
    variation = next(v for v in VARIATIONS if v.name == name.split("-")[0])
    if variation.unavailable(RunPlan((), (), WatchConfig(folder=""))):
        pytest.skip("cannot be varied here")
    (tmp_path / "program.py").write_text(program)
    code, report = check(["--vary", f"rerun,hash_seed,{variation.name}", "program.py"], tmp_path)
    assert code == 1, report
    outcomes = {v["name"]: v["outcome"] for v in report["variations"]}
    assert (outcomes["rerun"], outcomes[variation.name]) == ("same", "different")
    assert (report["cause"]["kind"], report["cause"]["line"]) == (kind, line), report["cause"]
    assert report["cause"]["certain"] is True


@pytest.mark.exhaustive
def test_a_clean_program_is_same_under_all_of_them(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(CLEAN)
    code, report = check(["--vary", "all", "program.py"], tmp_path)
    assert code == 0, report
    outcomes = {v["name"]: v["outcome"] for v in report["variations"]}
    assert list(outcomes) == [v.name for v in parse_vary_option("all")]
    assert {name for name, outcome in outcomes.items() if outcome == "skipped"} <= {
        "world_size", "resume", "address_layout", "cpu_capability", "working_directory", "process_start", "threads",
        "batch_split",
    }  # fmt: skip
    assert (outcomes["world_size"], outcomes["resume"]) == ("skipped", "skipped")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["program.py"]


def test_groups() -> None:
    assert GROUPS == ("environment", "shape", "machine")
    assert [v.name for v in parse_vary_option("shape")] == [
        "threads", "workers", "batch_split", "process_start", "world_size", "resume",
    ]  # fmt: skip
    assert parse_vary_option("all") == tuple(v for v in VARIATIONS if not v.only_by_name)


@pytest.mark.parametrize("variation", VARIATIONS, ids=lambda v: v.name)
def test_a_variation_is_a_pure_function(variation) -> None:
    plan = RunPlan((sys.executable, "train.py"), ("train.py",), WatchConfig(folder=""))
    same = RunPlan((sys.executable, "train.py"), ("train.py",), WatchConfig(folder=""))
    varied, control = variation.apply(plan, True), variation.apply(plan, False)
    assert plan == same
    assert (varied, control) == (variation.apply(plan, True), variation.apply(plan, False))
    if variation.name not in ("rerun", "resume", "world_size"):
        assert varied != control


def test_skipped_variations_say_why() -> None:
    plan = RunPlan((sys.executable, "train.py"), ("train.py",), WatchConfig(folder=""))
    reasons = {v.name: v.unavailable(plan) for v in VARIATIONS}
    assert "torchrun" in reasons["world_size"]


@pytest.mark.parametrize(
    ("command", "found", "changed"),
    [
        (("torchrun", "--nproc-per-node", "2", "t.py"), (2, 2), ("torchrun", "--nproc-per-node", "1", "t.py")),
        (("/x/torchrun", "--nproc_per_node=1", "t.py"), (1, 1), ("/x/torchrun", "--nproc_per_node=2", "t.py")),
        (("python", "-m", "torch.distributed.run", "--nproc-per-node=4", "t.py"), (3, 4),
         ("python", "-m", "torch.distributed.run", "--nproc-per-node=3", "t.py")),
        (("torchrun", "--nproc-per-node", "gpu", "t.py"), None, None),
        (("torchrun", "t.py"), None, None),
        (("python", "t.py", "--nproc-per-node", "2"), None, None),
    ],
)  # fmt: skip
def test_ranks(command: tuple[str, ...], found: object, changed: tuple[str, ...] | None) -> None:
    assert processes.find_torchrun_rank_count_option(command) == found
    plan = RunPlan(command, command, WatchConfig(folder=""))
    assert processes.vary_or_leave_world_size(plan, True).command == (changed or command)
    assert processes.vary_or_leave_world_size(plan, False) == plan


def test_what_a_scope_leaves_out() -> None:
    roles = ("main", "main/loader1.worker0", "main/Process-1", "rank0", "rank1")
    assert [r for r in roles if is_process_compared(r, ())] == list(roles)
    without_workers = [role for role in roles if is_process_compared(role, (IGNORE_DATA_LOADING,))]
    assert without_workers == ["main", "main/Process-1", "rank0", "rank1"]
    assert [r for r in roles if is_process_compared(r, (IGNORE_CHILDREN,))] == ["main", "rank0", "rank1"]
    assert [r for r in roles if is_process_compared(r, (ONLY_RANK_0,))] == ["main", "rank0"]


# --- folders -------------------------------------------------------------------------------------------


def test_a_folder_is_copied(tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    (source / "deep").mkdir(parents=True)
    (source / "deep" / "data.txt").write_text("3")
    (source / "left.txt").write_text("4")
    (source / "link").symlink_to("deep")
    folder_copies.copy_folder(source, target, ("left.txt",))
    assert (target / "deep" / "data.txt").read_text() == "3"
    assert (target / "link").is_symlink()
    assert not (target / "left.txt").exists()


def test_a_large_folder_is_not_copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a").write_text("12345")
    (tmp_path / "b").write_text("12345")
    assert folder_copies.why_folder_is_too_large_to_copy(tmp_path) == ""
    monkeypatch.setattr(folder_copies, "MAX_FILES", 1)
    assert "1 files" in folder_copies.why_folder_is_too_large_to_copy(tmp_path)


# --- resume --------------------------------------------------------------------------------------------


@pytest.mark.exhaustive
def test_a_program_that_is_not_interrupted_is_trouble(tmp_path: Path) -> None:
    program = (
        "import torch\nm = torch.nn.Linear(2, 1)\no = torch.optim.SGD(m.parameters(), 0.1)\n"
        "m(torch.ones(1, 2)).sum().backward()\no.step()\n"
    )
    (tmp_path / "program.py").write_text(program)
    options = ["--vary", "none", "--interrupt", "STOP=1", "--resume", "GO=1"]
    done = samerun(["check", *options, "program.py"], tmp_path)
    assert done.returncode == 2
    assert "was not interrupted: it made 1 optimizer steps of 1" in done.stderr
    assert "STOP=1" in done.stderr

"""`samerun check` of programs that something else starts: each launcher is the real one, but Slurm's.

What is not installed is skipped; `make test-adapters` has Hydra and accelerate, `make test-packages` Ray too. Each
program is clean, and with HAZARD it draws from a generator without a seed, in one process of several where the launcher
starts several (accelerate starts one without GPUs).
"""

from __future__ import annotations

import importlib.util
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from check_command import check

DRAW = """
def draw(rank):
    if os.environ.get("HAZARD") and rank == 1:
        return float(np.random.default_rng().random())  # WRONG
    return 1.0 + rank
"""
BEGIN = "import os\nimport numpy as np\nimport torch\nimport torch.distributed as dist\n" + DRAW
TRAIN = """
torch.manual_seed(0)
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(2):
    optimizer.zero_grad()
    (model(torch.randn(8, 4)) * draw({rank})).mean().backward()
    for parameter in model.parameters():
        dist.all_reduce(parameter.grad)
    optimizer.step()
dist.destroy_process_group()
"""
TORCHRUN = BEGIN + "dist.init_process_group('gloo')\n" + TRAIN.format(rank="dist.get_rank()")
SLURM = (
    BEGIN
    + 'rank, size = int(os.environ["SLURM_PROCID"]), int(os.environ["SLURM_NTASKS"])\n'
    + 'meeting = "file://" + os.path.abspath("meeting." + os.environ["SLURM_JOB_ID"])\n'
    + 'dist.init_process_group("gloo", init_method=meeting, rank=rank, world_size=size)\n'
    + TRAIN.format(rank="rank")
)
SRUN = """
import os, subprocess, sys
number = int(sys.argv[1].partition("=")[2])
job = {**os.environ, "SLURM_JOB_ID": str(os.getpid()), "SLURM_NTASKS": str(number)}
tasks = [
    subprocess.Popen(sys.argv[2:], env={**job, "SLURM_PROCID": str(task), "SLURM_LOCALID": str(task)})
    for task in range(number)
]
sys.exit(max(task.wait() for task in tasks))
"""
"""What srun does for the tasks of one node: N processes of the command, told their numbers by variables."""
ACCELERATE = (
    "import os\nimport numpy as np\nimport torch\nfrom accelerate import Accelerator\n"
    + DRAW
    + """
accelerator = Accelerator(cpu=True)
torch.manual_seed(0)
data = torch.utils.data.TensorDataset(torch.randn(16, 4))
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model, optimizer, loader = accelerator.prepare(model, optimizer, torch.utils.data.DataLoader(data, batch_size=4))
for (batch,) in loader:
    optimizer.zero_grad()
    accelerator.backward((model(batch) * draw(1)).mean())
    optimizer.step()
accelerator.end_training()
"""
)
HYDRA = (
    "import os\nimport hydra\nimport numpy as np\nimport torch\n"
    + DRAW
    + """
@hydra.main(version_base=None, config_path="conf", config_name="config")
def main(config):
    torch.manual_seed(config.seed)
    model = torch.nn.Linear(4, config.model.width)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(config.steps):
        optimizer.zero_grad()
        (model(torch.randn(8, 4)) * draw(1)).mean().backward()
        optimizer.step()
    assert config.model.width == 6, "the override arrives"

main()
"""
)
RAY = (
    BEGIN
    + "import ray\nimport ray.train.torch\n\ndef loop(config):\n"
    + "".join(
        f"    {line}\n" for line in TRAIN.format(rank="dist.get_rank()").replace("dist.destroy", "# ").splitlines()
    )
    + """
if __name__ == "__main__":
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, configure_logging=False)
    ray.train.torch.TorchTrainer(
        loop,
        scaling_config=ray.train.ScalingConfig(num_workers=2),
        run_config=ray.train.RunConfig(storage_path=os.path.abspath("results")),
        torch_config=ray.train.torch.TorchConfig(backend="gloo"),
    ).fit()
    ray.shutdown()
"""
)
pytestmark = pytest.mark.exhaustive
QUIET = {
    "OMP_NUM_THREADS": "1",
    "RAY_TRAIN_V2_ENABLED": "1",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_AUTH_MODE": "disabled",
    "DO_NOT_TRACK": "1",
}


@dataclass(frozen=True)
class Launcher:
    """A program, the words that start it, and the package that these need."""

    program: str
    words: tuple[str, ...]
    package: str = "torch"


LONGEST = 1800.0
"""Seconds that a check may take: Ray starts a dozen processes for each of its runs."""
PYTHON = ("--", sys.executable, "-m")
LAUNCHERS = {
    "torchrun": Launcher(
        TORCHRUN, (*PYTHON, "torch.distributed.run", "--standalone", "--nproc-per-node=2", "train.py")
    ),
    "slurm": Launcher(SLURM, ("--", sys.executable, "srun.py", "--ntasks=2", sys.executable, "train.py")),
    "accelerate": Launcher(
        ACCELERATE,
        (
            *PYTHON,
            "accelerate.commands.launch",
            "--cpu",
            "--num_processes=1",
            "--num_cpu_threads_per_process=1",
            "train.py",
        ),
        "accelerate",
    ),
    "hydra": Launcher(HYDRA, ("train.py", "model.width=6"), "hydra"),
    "ray": Launcher(RAY, ("train.py",), "ray"),
}


@pytest.mark.parametrize("name", LAUNCHERS)
def test_a_launched_program_is_checked(name: str, tmp_path: Path) -> None:
    launcher = LAUNCHERS[name]
    if importlib.util.find_spec(launcher.package) is None:
        pytest.skip(f"{launcher.package} is not installed")
    (tmp_path / "train.py").write_text(launcher.program)
    (tmp_path / "srun.py").write_text(SRUN)
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf/config.yaml").write_text("seed: 0\nsteps: 2\nmodel:\n  width: 3\n")
    arguments = ["--vary", "rerun,hash_seed", *launcher.words]
    code, report = check(arguments, tmp_path, LONGEST, **QUIET)
    assert (code, report["verdict"]) == (0, "same"), report
    code, report = check(arguments, tmp_path, LONGEST, HAZARD="1", **QUIET)
    assert code == 1, report
    cause = report["cause"]
    line = launcher.program.splitlines().index("        return float(np.random.default_rng().random())  # WRONG") + 1
    assert (cause["kind"], cause["certain"], cause["line"]) == ("unseeded-numpy-generator", True, line), cause

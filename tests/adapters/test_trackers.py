"""A receipt in the tracker that a program uses, each the real package, offline. `make test-packages` has them."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from samerun.adapters.trackers import log_receipt
from samerun.base.errors import SamerunError

TRAIN = """
import samerun, torch
from samerun.adapters.trackers import log_receipt
torch.manual_seed(0)
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
with samerun.receipt("run.json"):
    for _ in range(3):
        model(torch.ones(2, 4)).sum().backward()
        optimizer.step()
"""
PROGRAMS = {
    "mlflow": """
import mlflow
mlflow.set_tracking_uri("sqlite:///mlflow.db")
with mlflow.start_run() as run:
    print(log_receipt("run.json"))
data = mlflow.get_run(run.info.run_id).data
print(data.tags["samerun/digest"], [f.path for f in mlflow.MlflowClient().list_artifacts(run.info.run_id, "samerun")])
""",
    "wandb": """
import wandb
with wandb.init(project="p", settings=wandb.Settings(x_disable_stats=True)) as run:
    print(log_receipt("run.json"))
    print(run.summary["samerun/digest"], ["samerun/run.json"])
""",
    "tensorboard": """
from torch.utils.tensorboard import SummaryWriter
with SummaryWriter("logs") as writer:
    print(log_receipt("run.json", to=writer))
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
events = EventAccumulator("logs").Reload()
(text,) = events.Tensors("samerun/receipt/text_summary")
shown = text.tensor_proto.string_val[0].decode()
print(shown.partition("digest | ")[2].split(" ")[0], ["samerun/run.json"])
""",
    "aim": """
import aim
run = aim.Run(repo=".", system_tracking_interval=None, capture_terminal_logs=False)
print(log_receipt("run.json", to=run))
run.close()
kept = aim.Run(run.hash, repo=".", system_tracking_interval=None, capture_terminal_logs=False)["samerun"]
print(kept["digest"], [f"samerun/{kept['receipt']}"])
""",
}
OFFLINE = {"WANDB_MODE": "offline", "WANDB_SILENT": "true", "DO_NOT_TRACK": "1"}


@pytest.mark.parametrize("tracker", PROGRAMS)
def test_a_tracker_holds_the_receipt(tracker: str, tmp_path: Path) -> None:
    if importlib.util.find_spec(tracker) is None:
        pytest.skip(f"{tracker} is not installed; `make test-packages` runs this")
    (tmp_path / "train.py").write_text(TRAIN + PROGRAMS[tracker])
    done = subprocess.run(
        [sys.executable, "train.py"],
        cwd=tmp_path,
        env={**os.environ, **OFFLINE},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    digest = json.loads((tmp_path / "run.json").read_text())["digest"]
    assert done.stdout.splitlines()[-2:] == [f"['{tracker}']", f"{digest} ['samerun/run.json']"]


@pytest.mark.slow
def test_what_cannot_be_logged_is_said(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", TRAIN], cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    with pytest.raises(SamerunError, match="no run of MLflow or wandb is active"):
        log_receipt(tmp_path / "run.json")
    with pytest.raises(SamerunError, match=r"a builtins\.dict is not a run that samerun knows"):
        log_receipt(tmp_path / "run.json", to={})
    (tmp_path / "other.json").write_text("{}")
    with pytest.raises(SamerunError, match="not a samerun receipt"):
        log_receipt(tmp_path / "other.json")

"""A receipt, logged to the experiment tracker that a program uses: MLflow, Weights & Biases, TensorBoard, Aim.

    with samerun.receipt("run.json"):
        train()
    log_receipt("run.json")

Nothing is imported for it: a tracker that the program has not loaded is not there.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from samerun.base.errors import SamerunError
from samerun.record.receipt.receipt_file import read_and_verify_digest

PREFIX = "samerun/"


def log_receipt(path: str | os.PathLike[str], to: Any = None) -> list[str]:
    """Log a receipt's file and its digest; returns the names of the trackers that took it.

    `to`: a run of wandb or Aim, or a SummaryWriter of TensorBoard. None: the active runs of MLflow and of
    wandb, which know theirs. Raises SamerunError for what is not a receipt, for a run of another kind, and where `to`
    is None and no run is active.
    """
    file = Path(path)
    summary = summarize_receipt(read_and_verify_digest(file))
    if to is not None:
        kind = f"{type(to).__module__}.{type(to).__name__}"
        for name, (is_run, log) in _RUNS.items():
            if is_run(kind, to):
                log(to, file, summary)
                return [name]
        raise SamerunError(
            f"log_receipt(to=...): a {kind} is not a run that samerun knows.",
            hint="Give a run of wandb or Aim, or TensorBoard's SummaryWriter; MLflow's run is found without `to`.",
        )
    reached = [name for name, log_active in _ACTIVE.items() if log_active(file, summary)]
    if not reached:
        raise SamerunError(
            "log_receipt: no run of MLflow or wandb is active in this process.",
            hint="Call it before the run ends, or give the run: log_receipt(path, to=run).",
        )
    return reached


def summarize_receipt(receipt: dict[str, Any]) -> dict[str, str]:
    """What is worth a column in a tracker's table: the digest of what can be reproduced, and whether it is whole."""
    steps = [len(process.get("steps") or ()) for process in receipt["processes"].values()]
    return {
        "digest": str(receipt["digest"]),
        "complete": "yes" if receipt["ended"]["complete"] else "no",
        "steps": str(max(steps, default=0)),
        "samerun": str(receipt["samerun"]),
    }


def _is_tensorboard_writer(full_type_name: str, run: Any) -> bool:
    return full_type_name.rpartition(".")[2] == "SummaryWriter" and hasattr(run, "add_text")


def _is_wandb_run(full_type_name: str, run: Any) -> bool:
    return full_type_name.startswith("wandb.") and hasattr(run, "summary")


def _is_aim_run(full_type_name: str, run: Any) -> bool:
    return full_type_name.startswith("aim.") and hasattr(run, "hash")


def _log_summary_to_tensorboard(writer: Any, path: Path, summary: dict[str, str]) -> None:
    rows = "\n".join(f"| {name} | {value} |" for name, value in summary.items())
    writer.add_text(f"{PREFIX}receipt", f"| receipt | {path.name} |\n|---|---|\n{rows}")


def _log_summary_and_file_to_wandb(run: Any, path: Path, summary: dict[str, str]) -> None:
    run.summary.update({f"{PREFIX}{name}": value for name, value in summary.items()})
    artifact = sys.modules["wandb"].Artifact(f"receipt-{run.id}", type="receipt", metadata=dict(summary))
    artifact.add_file(str(path))
    run.log_artifact(artifact)


def _log_summary_to_aim(run: Any, path: Path, summary: dict[str, str]) -> None:
    """Parameters alone: a run of Aim keeps files only where its owner has named a place for them."""
    run[PREFIX.rstrip("/")] = {"receipt": path.name, **summary}


def _log_to_mlflow_if_run_is_active(path: Path, summary: dict[str, str]) -> bool:
    mlflow: Any = sys.modules.get("mlflow")
    if mlflow is None or mlflow.active_run() is None:
        return False
    mlflow.set_tags({f"{PREFIX}{name}": value for name, value in summary.items()})
    mlflow.log_artifact(str(path), artifact_path="samerun")
    return True


def _log_to_wandb_if_run_is_active(path: Path, summary: dict[str, str]) -> bool:
    run = getattr(sys.modules.get("wandb"), "run", None)
    if run is None:
        return False
    _log_summary_and_file_to_wandb(run, path, summary)
    return True


_RUNS: dict[str, tuple[Callable[[str, Any], bool], Callable[[Any, Path, dict[str, str]], None]]] = {
    "tensorboard": (_is_tensorboard_writer, _log_summary_to_tensorboard),
    "wandb": (_is_wandb_run, _log_summary_and_file_to_wandb),
    "aim": (_is_aim_run, _log_summary_to_aim),
}
_ACTIVE: dict[str, Callable[[Path, dict[str, str]], bool]] = {
    "mlflow": _log_to_mlflow_if_run_is_active,
    "wandb": _log_to_wandb_if_run_is_active,
}

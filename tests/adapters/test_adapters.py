"""Other people's loops: two short runs of each give the same receipt; what is not installed is skipped."""

from __future__ import annotations

import random
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from check_command import samerun
from fresh_process import loaded_modules

import samerun as public
from samerun import data as samerun_data
from samerun.base.errors import DataError
from samerun.record.receipt.diff import diff_runs, load_run


def test_the_plugin_is_light() -> None:
    loaded = loaded_modules("import samerun.adapters.pytest")
    assert not {"torch", "numpy", "jsonschema", "samerun.record"} & set(loaded)


@pytest.mark.exhaustive
def test_marks_of_ranks_that_drift_are_told(tmp_path: Path) -> None:
    (tmp_path / "ranks.py").write_text(
        "import torch, torch.distributed as dist\n"
        "dist.init_process_group('gloo')\n"
        "model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 2))\n"
        "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n"
        "for step in range(3):\n"
        "    optimizer.zero_grad(); model(torch.randn(8, 4)).sum().backward(); optimizer.step()\n"
        "    if step == 0 and dist.get_rank() == 1:\n"
        "        with torch.no_grad(): next(model.parameters()).add_(1)\n"
        "dist.destroy_process_group()\n"
    )
    words = ["run", "--quiet", "--receipt", "job.json", "--", sys.executable, "-m", "torch.distributed.run"]
    done = samerun([*words, "--standalone", "--nproc-per-node", "2", "ranks.py"], tmp_path, OMP_NUM_THREADS="1")
    assert done.returncode == 0, done.stderr
    receipt: Any = load_run(tmp_path / "job.json").receipt
    assert {"rank0", "rank1"} <= set(receipt["processes"]) and receipt["ended"]["complete"]
    assert receipt["ranks"]["drift"] == {"step": 2, "groups": [["rank0"], ["rank1"]], "from_the_start": False}
    assert "drift apart: after step 2" in samerun(["diff", "job.json", "job.json"], tmp_path).stdout


def same(tmp_path: Path, steps: int) -> None:
    """Both receipts are there, say the same, and hold the steps and marks."""
    sides = [load_run(tmp_path / f"{name}.json") for name in "ab"]
    record = diff_runs(sides[0], sides[1], ["*"])
    assert record["verdict"] == "same" and record["steps"] == steps, (record["first_difference"], record["others"])
    assert all(side.receipt and side.receipt["processes"]["main"]["marks"] for side in sides)


DATA = torch.utils.data.TensorDataset(torch.arange(32.0).reshape(8, 4), torch.ones(8, 1))


@pytest.mark.filterwarnings("ignore")  # the library's own
def test_lightning(tmp_path: Path) -> None:
    lightning = pytest.importorskip("lightning")
    from samerun.adapters.lightning import ReceiptCallback

    class Module(lightning.LightningModule):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(4, 1)

        def training_step(self, batch: Any, _: Any) -> Any:
            return (self.layer(batch[0]) - batch[1]).pow(2).mean()

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), lr=1e-3)

    for name in "ab":
        public.seed_everything(0)
        lightning.Trainer(
            max_epochs=2, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False,
            callbacks=[ReceiptCallback(tmp_path / f"{name}.json")],
        ).fit(Module(), torch.utils.data.DataLoader(DATA, batch_size=4, shuffle=True))  # fmt: skip
    same(tmp_path, 4)


@pytest.mark.filterwarnings("ignore")  # the library's own
def test_transformers(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    pytest.importorskip("accelerate")
    from samerun.adapters.transformers import ReceiptCallback

    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(4, 1)

        def forward(self, x: Any, labels: Any) -> Any:
            return {"loss": (self.layer(x) - labels).pow(2).mean()}

    data = [{"x": x, "labels": y} for x, y in DATA]
    for name in "ab":
        public.seed_everything(0)
        arguments = transformers.TrainingArguments(
            output_dir=str(tmp_path / name), num_train_epochs=2, per_device_train_batch_size=4, report_to=[],
            save_strategy="no", use_cpu=True, disable_tqdm=True,
        )  # fmt: skip
        transformers.Trainer(
            model=Model(), args=arguments, train_dataset=data, callbacks=[ReceiptCallback(tmp_path / f"{name}.json")]
        ).train()
    same(tmp_path, 4)


@pytest.mark.filterwarnings("ignore")  # the library's own
def test_accelerate(tmp_path: Path) -> None:
    accelerate = pytest.importorskip("accelerate")
    from samerun.adapters.accelerate import ReceiptTracker

    for name in "ab":
        public.seed_everything(0)
        accelerator = accelerate.Accelerator(cpu=True, log_with=ReceiptTracker(tmp_path / f"{name}.json"))
        model = torch.nn.Linear(4, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
        loader = torch.utils.data.DataLoader(DATA, batch_size=4, shuffle=True)
        model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
        accelerator.init_trackers("project")
        for step, (x, y) in enumerate(loader):
            optimizer.zero_grad()
            loss = (model(x) - y).pow(2).mean()
            accelerator.backward(loss)
            optimizer.step()
            accelerator.log({"loss": loss.item()}, step=step)
        accelerator.end_training()
    same(tmp_path, 2)


class Noisy(torch.utils.data.Dataset[Any]):
    def __len__(self) -> int:
        return 40

    def __getitem__(self, index: int) -> Any:
        return torch.randn(4) + random.random(), torch.ones(1)


def noisy(**options: Any) -> Any:
    return samerun_data.DataLoader(Noisy(), 8, shuffle=True, seed=3, **options)


@pytest.mark.exhaustive
@pytest.mark.filterwarnings("ignore")  # the library's own
def test_lightning_takes_the_loader() -> None:
    lightning = pytest.importorskip("lightning")
    seen: list[Any] = []

    class Module(lightning.LightningModule):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(4, 1)

        def training_step(self, batch: Any, _: Any) -> Any:
            seen.append(batch[0].clone())
            return (self.layer(batch[0]) - batch[1]).pow(2).mean()

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), lr=1e-3)

    for workers in (0, 2):
        lightning.Trainer(
            max_epochs=2, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False,
            num_sanity_val_steps=2, use_distributed_sampler=False,
        ).fit(Module(), noisy(num_workers=workers), noisy(name="valid"))  # fmt: skip
    loader = noisy()
    expected = [batch for _ in range(2) for batch, _ in loader]
    assert len(seen) == 20 and all(map(torch.equal, seen, expected * 2))


@pytest.mark.exhaustive
@pytest.mark.filterwarnings("ignore")  # the library's own
def test_accelerate_takes_the_loader() -> None:
    accelerate = pytest.importorskip("accelerate")
    from samerun.adapters.accelerate_loader import prepare_loader

    whole = noisy()
    epochs = [[batch for batch, _ in whole] for _ in range(3)]
    accelerator = accelerate.Accelerator(cpu=True, gradient_accumulation_steps=3)
    loader = prepare_loader(accelerator, noisy())
    assert accelerator.prepare(loader) is loader and isinstance(loader, torch.utils.data.DataLoader)
    model = accelerator.prepare(torch.nn.Linear(4, 1))
    synced, state = [], {}
    for epoch in range(2):
        for step, (batch, _) in enumerate(loader):
            assert torch.equal(batch, epochs[epoch][step])
            with accelerator.accumulate(model):
                synced.append(accelerator.sync_gradients)
            if (epoch, step) == (1, 2):
                state = loader.state_dict()
    assert synced == [False, False, True, False, True] * 2, "the last batch of an epoch is known"
    resumed = prepare_loader(accelerator, noisy(num_workers=2))
    resumed.load_state_dict(state)
    rest = [[batch for batch, _ in resumed] for _ in range(2)]
    assert [len(part) for part in rest] == [2, 5]
    assert all(map(torch.equal, rest[0] + rest[1], epochs[1][3:] + epochs[2]))
    with pytest.raises(DataError, match="shared out to 2 ranks, and accelerate has 1"):
        prepare_loader(accelerator, noisy(shard=(0, 2)))
    with pytest.raises(DataError, match=r"is a torch\.utils\.data\.dataloader\.DataLoader"):
        prepare_loader(accelerator, torch.utils.data.DataLoader(Noisy()))


@pytest.mark.exhaustive
@pytest.mark.filterwarnings("ignore")  # the library's own
def test_transformers_takes_the_loader(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    pytest.importorskip("accelerate")
    from samerun.adapters.accelerate_loader import prepare_loader

    seen: list[Any] = []

    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(4, 1)

        def forward(self, x: Any, labels: Any) -> Any:
            seen.append(x.clone())
            return {"loss": (self.layer(x) - labels).pow(2).mean()}

    class Trainer(transformers.Trainer):  # type: ignore[misc, name-defined]
        def get_train_dataloader(self) -> Any:
            return prepare_loader(self.accelerator, noisy(collate_fn=named))

    arguments = transformers.TrainingArguments(
        output_dir=str(tmp_path), num_train_epochs=2, report_to=[], save_strategy="no", use_cpu=True, disable_tqdm=True
    )
    Trainer(model=Model(), args=arguments).train()
    loader = noisy()
    expected = [batch for _ in range(2) for batch, _ in loader]
    assert len(seen) == 10 and all(map(torch.equal, seen, expected))


def named(samples: Any) -> Any:
    x, labels = torch.utils.data.default_collate(samples)
    return {"x": x, "labels": labels}

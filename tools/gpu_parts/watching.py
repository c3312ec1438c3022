"""Part 7: what watching costs a step (benchmarks/bench_watch.py), and how often it waits for the device."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import bench_watch

from gpu_parts.checks import Check, Facts, PartDevice, SkippedCheck

LIMIT = 280.0
WAYS = ("plain", "steps", "ops")
AIMS = {("gpt", "ops"): 1.5}
MOST_WAITS_PER_OPERATOR = 0.5
"""Above it, watching waits for the device at nearly every operator."""

COUNT = """
import sys, warnings
import torch
sys.path.insert(0, sys.argv[1])
from workloads import make
from torch.utils._python_dispatch import TorchDispatchMode

class Counting(TorchDispatchMode):
    operators = 0
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        Counting.operators += 1
        return func(*args, **(kwargs or {}))

model, step = make("gpt", "cuda")
step(0)
torch.cuda.synchronize()
torch.cuda.set_sync_debug_mode("warn")
with warnings.catch_warnings(record=True) as seen:
    warnings.simplefilter("always")
    for number in range(1, 4):
        step(number)
torch.cuda.set_sync_debug_mode("default")
waits = sum("synchronizing CUDA operation" in str(each.message) for each in seen)
with Counting():
    step(4)
print("WAITS", waits / 3, Counting.operators)
"""


def make_checks(device: PartDevice) -> Iterator[Check]:
    for model in ("mlp",) if device.is_emulated else ("gpt", "cnn"):
        yield Check(f"{model} steps and operators", partial(measure, model, device), LIMIT)
    yield Check("waits for the device", partial(count_waits, device), LIMIT)


def measure(model: str, device: PartDevice) -> Facts:
    rounds, steps = (2, 1) if device.is_emulated else (15, 5)
    with tempfile.TemporaryDirectory(prefix="samerun-gpu-") as folder:
        times = bench_watch.measure(model, list(WAYS), rounds, steps, 2, Path(folder), device.torch_name)
    ratios = {
        bench_watch.SHOWN[way]: [round(a / b, 4) for (a, _), (b, _) in zip(times[way], times["plain"], strict=True)]
        for way in WAYS[1:]
    }
    if device.is_emulated:
        return {"note": "measured on the CPU, and not told: benchmarks/bench_watch.py does that"}
    aims = {bench_watch.SHOWN[way]: aim for (name, way), aim in AIMS.items() if name == model}
    plain = min(seconds for seconds, _ in times["plain"])
    return {"ratios": ratios, "aims": aims, "milliseconds": {"not watched": round(1e3 * plain, 3)}}


def count_waits(device: PartDevice) -> Facts:
    """A GPT's step, plain and watched: torch itself warns of every operation that waits for the device."""
    if device.is_emulated:
        raise SkippedCheck("emulated: nothing waits for a device")
    with tempfile.TemporaryDirectory(prefix="samerun-gpu-") as name:
        folder = Path(name)
        (folder / "count.py").write_text(COUNT, encoding="utf-8")
        (plain, operators), (watched, _) = (count_in(folder, way) for way in ("plain", "ops"))
    told = f"{plain:.1f} waits a step alone, {watched:.1f} watched, {operators:.0f} operators"
    assert watched - plain <= MOST_WAITS_PER_OPERATOR * operators, told
    return {"note": told}


def count_in(folder: Path, way: str) -> tuple[float, float]:
    environment = {**os.environ, **bench_watch.watch_environment("count", way, folder)}
    done = subprocess.run(
        [sys.executable, "count.py", str(Path(bench_watch.__file__).parent)], cwd=folder, env=environment,
        capture_output=True, text=True, timeout=LIMIT / 2, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-1200:]
    words = next(line for line in done.stdout.splitlines() if line.startswith("WAITS")).split()
    return float(words[1]), float(words[2])

"""What watching and guarding cost a training on two ranks: steps only, side by side.

    python benchmarks/bench_ranks.py [--ranks 2] [--rounds 3] [--steps 20]

DistributedDataParallel over gloo, one thread a rank. In each process plain and guarded steps take turns; processes that
are watched (`samerun run`, with and without a receipt) take turns with processes that are not.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing
import workloads
from result_tables import Results, add_json_option

import samerun

GUARDS = {"every step computed twice": "recompute", "every step computed by the other rank": "peer"}


def measure_rank(rank: int, world: int, folder: str, steps: int, is_guarded: bool) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", store=dist.FileStore(f"{folder}/store", world), rank=rank, world_size=world)
    torch.manual_seed(0)
    model = torch.nn.parallel.DistributedDataParallel(workloads.CNN())
    optimizer = torch.optim.AdamW(model.parameters())
    x, y = torch.randn(64, 3, 32, 32), torch.arange(64) % 10

    def step(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    ways: dict[str, Callable[[], object]] = {"plain": lambda: step(x, y)}
    for name, also in GUARDS.items() if is_guarded else ():
        guard = samerun.guard(model, optimizer, every=1, also=also)  # type: ignore[arg-type]
        ways[name] = lambda guard=guard: guard.step(step, x, y)
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for number in range(steps + 2):
        for name, run in ways.items():
            dist.barrier()
            begin = time.perf_counter()
            run()
            if number >= 2:
                seconds[name].append(time.perf_counter() - begin)
    if rank == 0:
        Path(folder, "told").write_text(json.dumps(seconds))
    dist.destroy_process_group()


def measure_process(arguments: argparse.Namespace, before: list[str], is_guarded: bool) -> dict[str, list[float]]:
    with tempfile.TemporaryDirectory() as folder:
        words = [__file__, "--ranks", str(arguments.ranks), "--steps", str(arguments.steps), "--child", folder]
        before = [word.replace("FOLDER", folder) for word in before]
        environment = {**os.environ, "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}
        command = [sys.executable, *before, *words, *(["--guarded"] if is_guarded else [])]
        subprocess.run(command, env=environment, check=True, stdout=subprocess.DEVNULL)
        told: dict[str, list[float]] = json.loads(Path(folder, "told").read_text())
        return told


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--child", help=argparse.SUPPRESS)
    parser.add_argument("--guarded", action="store_true", help=argparse.SUPPRESS)
    add_json_option(parser)
    arguments = parser.parse_args()
    if arguments.child:
        parameters = (arguments.ranks, arguments.child, arguments.steps, arguments.guarded)
        torch.multiprocessing.spawn(measure_rank, parameters, nprocs=arguments.ranks)
        return
    run = ["-m", "samerun", "run"]
    watched = {"samerun run": run, "samerun run --receipt": [*run, "--receipt", "FOLDER/run.json"]}
    seconds: dict[str, list[float]] = {}
    for _ in range(arguments.rounds):
        for name, values in measure_process(arguments, [], True).items():
            seconds.setdefault(name, []).extend(values)
        for name, before in watched.items():
            seconds.setdefault(name, []).extend(measure_process(arguments, before, False)["plain"])
    with Results(arguments.json) as results:
        title = f"a CNN on {arguments.ranks} ranks, {arguments.rounds * arguments.steps} steps each way"
        table = results.table(title, {"": "", "median step, ms": ".1f", "times plain": ".2f"})
        plain = statistics.median(seconds["plain"])
        for name, values in seconds.items():
            median = statistics.median(values)
            table.add(name, 1000 * median, median / plain)


if __name__ == "__main__":
    main()

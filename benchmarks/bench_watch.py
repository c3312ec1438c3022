"""What watching costs: the same training step, plain and watched, side by side.

    python benchmarks/bench_watch.py [--rounds 40] [--steps 3] [--ways steps,ops] [--work-of gpt] [--json FILE]
    python benchmarks/bench_watch.py --ways receipt --cpu --threads 1     on a machine with other work

One process per way of watching, each with two threads. They take turns: in every round each runs the
same few steps while the others wait, in an order that rotates. Reported is the median over the rounds
of (time watched / time plain in the same round), so that a slow moment of the machine hits both. With
--cpu it is the process's CPU time, which other programs change less (take one thread then: two wait for
each other busily).
torch's DebugMode with the same content (inputs, outputs, modules, stacks) stands in the same table, and
msProbe (`pip install mindstudio-probe`) where it is installed.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
WAYS = ("plain", "steps", "receipt", "ops", "double", "debugmode", "msprobe")
SHOWN = {
    "plain": "not watched",
    "steps": "samerun --trace steps",
    "receipt": "samerun run --receipt: steps, and what a receipt tells besides",
    "ops": "samerun --trace ops",
    "double": "samerun check --double",
    "debugmode": "torch DebugMode: hashes of inputs and outputs, modules, stacks",
    "msprobe": "msProbe mix, md5",
}


def work(name: str, way: str, threads: str, clock: str) -> None:
    """Run in a child: on every line read, train so many steps and answer with the seconds they took."""
    import torch

    sys.path.insert(0, str(HERE))
    from workloads import make

    torch.set_num_threads(int(threads))
    now = {"wall": time.perf_counter, "cpu": time.process_time}[clock]
    model, step = make(name)
    done = 0
    debugger: Any = None
    if way == "msprobe":
        from msprobe.pytorch import PrecisionDebugger

        debugger = PrecisionDebugger(config_path=os.environ["BENCH_MSPROBE_CONFIG"])
    for line in sys.stdin:
        seconds = 0.0
        for _ in range(int(line)):
            with ExitStack() as stack:
                begin = now()
                if way == "debugmode":
                    from torch.utils._debug_mode import DebugMode

                    mode = DebugMode(record_nn_module=True, record_stack_trace=True, record_ids=True)
                    stack.enter_context(mode)
                    stack.enter_context(DebugMode.log_tensor_hashes(hash_fn="norm", hash_inputs=True))
                if debugger is not None:
                    debugger.start(model=model)
                step(done)
                if debugger is not None:
                    debugger.stop()
                    debugger.step()
                done += 1
            seconds += now() - begin
        print(seconds, flush=True)


def child(name: str, way: str, folder: Path, threads: str, clock: str) -> subprocess.Popen[str]:
    environment = dict(os.environ, OMP_NUM_THREADS=threads, PYTHONHASHSEED="1")
    if way in ("steps", "receipt", "ops", "double"):
        from samerun.base.launch import bootstrap_folder
        from samerun.record.config import VARIABLE, WatchConfig

        traces = folder / f"{name}-{way}"
        traces.mkdir()
        config = WatchConfig(
            folder=str(traces), depth="ops" if way in ("ops", "double") else "steps", receipt=way == "receipt"
        )
        if way == "double":
            config = replace(config, double=2, memory="zeros")
            environment["MALLOC_PERTURB_"] = "255"
        (traces / "watch.json").write_text(config.to_json())
        environment[VARIABLE] = str(traces / "watch.json")
        environment["PYTHONPATH"] = os.pathsep.join(
            p for p in (str(bootstrap_folder()), environment.get("PYTHONPATH")) if p
        )
    if way == "msprobe":
        probe = folder / f"{name}-msprobe.json"
        probe.write_text(
            json.dumps({"task": "statistics", "dump_path": str(folder / f"{name}-dump"), "level": "mix",
                        "rank": [], "step": [], "statistics": {"scope": [], "list": [], "data_mode": ["all"],
                                                               "summary_mode": "md5"}})
        )  # fmt: skip
        environment["BENCH_MSPROBE_CONFIG"] = str(probe)
    return subprocess.Popen(
        [sys.executable, str(HERE / "bench_watch.py"), "--work", name, way, threads, clock],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment, cwd=folder,
        stderr=subprocess.DEVNULL if way == "msprobe" else None,
    )  # fmt: skip


def ask(process: subprocess.Popen[str], steps: int) -> float:
    assert process.stdin is not None and process.stdout is not None
    process.stdin.write(f"{steps}\n")
    process.stdin.flush()
    while True:  # msProbe prints to standard output
        line = process.stdout.readline()
        if not line:
            raise SystemExit("a child of the benchmark ended early")
        try:
            return float(line)
        except ValueError:
            continue


def measure(name: str, ways: list[str], options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    rounds, steps = options.rounds, options.steps
    clock = "cpu" if options.cpu else "wall"
    children = {way: child(name, way, folder, str(options.threads), clock) for way in ways}
    for process in children.values():
        ask(process, 3)
    times: dict[str, list[float]] = {way: [] for way in ways}
    for number in range(rounds):
        turn = number % len(ways)
        for way in ways[turn:] + ways[:turn]:
            times[way].append(ask(children[way], steps) / steps)
    for process in children.values():
        assert process.stdin is not None
        process.stdin.close()
        process.wait()
    result: dict[str, Any] = {}
    for way in ways:
        ratios = sorted(a / b for a, b in zip(times[way], times["plain"], strict=True))
        result[way] = {
            "ratio": statistics.median(ratios),
            "ratio_of_minima": min(times[way]) / min(times["plain"]),
            "quartiles": [ratios[len(ratios) // 4], ratios[-1 - len(ratios) // 4]],
            "milliseconds": statistics.median(times[way]) * 1e3,
        }
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--ways", default="all", help="comma-separated: " + ",".join(WAYS))
    parser.add_argument("--json", type=Path)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--cpu", action="store_true", help="CPU time instead of wall time")
    parser.add_argument("--work-of", default="cnn,gpt", help="comma-separated: cnn,gpt")
    parser.add_argument("--work", nargs=4, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.work:
        work(*options.work)
        return
    ways = list(WAYS) if options.ways == "all" else ["plain", *options.ways.split(",")]
    if importlib.util.find_spec("msprobe") is None and "msprobe" in ways:
        ways.remove("msprobe")
    results = {}
    for name in options.work_of.split(","):
        with tempfile.TemporaryDirectory() as folder:
            results[name] = measure(name, ways, options, Path(folder))
        cores = os.cpu_count()
        print(f"\n{name} ({platform.machine()}, {cores} cores, threads: {options.threads}, rounds: {options.rounds})")
        print(f"| {'way':62} | ratio | quartiles | of minima | ms/step{' of CPU' if options.cpu else ''} |")
        print("|---|---|---|---|---|")
        for way, r in results[name].items():
            low, high = r["quartiles"]
            print(f"| {SHOWN[way]:62} | {r['ratio']:.3f} | {low:.3f}-{high:.3f} | {r['ratio_of_minima']:.3f} "
                  f"| {r['milliseconds']:.1f} |")  # fmt: skip
    if options.json:
        options.json.write_text(json.dumps(results, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()

"""What watching costs: the same training step, plain and watched, side by side.

    python benchmarks/bench_watch.py [--rounds 40] [--steps 3] [--cpu] [--json FILE]

One process per way of watching, each with two threads. They take turns: in every round each runs the
same few steps while the others wait, in an order that rotates. Reported is the median over the rounds
of (time watched / time plain in the same round), so that a slow moment of the machine hits both.
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
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
WAYS = ("plain", "steps", "ops", "double", "debugmode", "msprobe")
SHOWN = {
    "plain": "not watched",
    "steps": "samerun --trace steps",
    "ops": "samerun --trace ops",
    "double": "samerun check --double",
    "debugmode": "torch DebugMode: hashes of inputs and outputs, modules, stacks",
    "msprobe": "msProbe mix, md5",
}


def work(name: str, way: str) -> None:
    """Run in a child: on every line read, train so many steps and answer with the seconds they took."""
    import torch

    sys.path.insert(0, str(HERE))
    from workloads import make

    cpu = "BENCH_CPU" in os.environ
    clock = time.process_time if cpu else time.perf_counter
    torch.set_num_threads(1 if cpu else 2)
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
                begin = clock()
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
            seconds += clock() - begin
        print(seconds, flush=True)


def child(name: str, way: str, folder: Path) -> subprocess.Popen[str]:
    environment = dict(os.environ, OMP_NUM_THREADS="2", PYTHONHASHSEED="1")
    if way in ("steps", "ops", "double"):
        from samerun.base.launch import bootstrap_folder
        from samerun.record.config import VARIABLE, WatchConfig

        traces = folder / f"{name}-{way}"
        traces.mkdir()
        how = WatchConfig(folder=str(traces), depth=way)
        if way == "double":
            how = WatchConfig(folder=str(traces), depth="ops", double=2, memory="zeros")
            environment["MALLOC_PERTURB_"] = "255"
        (traces / "watch.json").write_text(how.to_json())
        environment[VARIABLE] = str(traces / "watch.json")
        environment["PYTHONPATH"] = os.pathsep.join(
            p for p in (str(bootstrap_folder()), environment.get("PYTHONPATH")) if p
        )
    if way == "msprobe":
        config = folder / f"{name}-msprobe.json"
        config.write_text(
            json.dumps({"task": "statistics", "dump_path": str(folder / f"{name}-dump"), "level": "mix",
                        "rank": [], "step": [], "statistics": {"scope": [], "list": [], "data_mode": ["all"],
                                                               "summary_mode": "md5"}})
        )  # fmt: skip
        environment["BENCH_MSPROBE_CONFIG"] = str(config)
    return subprocess.Popen(
        [sys.executable, str(HERE / "bench_watch.py"), "--work", name, way],
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


def measure(name: str, ways: list[str], rounds: int, steps: int, folder: Path) -> dict[str, Any]:
    children = {way: child(name, way, folder) for way in ways}
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
    parser.add_argument("--cpu", action="store_true", help="CPU time, one thread: for a machine that is busy")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--work", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.work:
        work(*options.work)
        return
    if options.cpu:
        os.environ["BENCH_CPU"] = "1"
    ways = list(WAYS) if options.ways == "all" else ["plain", *options.ways.split(",")]
    if importlib.util.find_spec("msprobe") is None and "msprobe" in ways:
        ways.remove("msprobe")
    threads = "1 thread, CPU time" if options.cpu else "2 threads"
    results = {}
    for name in ("cnn", "gpt"):
        with tempfile.TemporaryDirectory() as folder:
            results[name] = measure(name, ways, options.rounds, options.steps, Path(folder))
        print(f"\n{name} ({platform.machine()}, {os.cpu_count()} cores, {threads}, {options.rounds} rounds)")
        print(f"| {'way':62} | ratio | quartiles | of minima | ms/step |")
        print("|---|---|---|---|---|")
        for way, r in results[name].items():
            low, high = r["quartiles"]
            print(f"| {SHOWN[way]:62} | {r['ratio']:.3f} | {low:.3f}-{high:.3f} | {r['ratio_of_minima']:.3f} "
                  f"| {r['milliseconds']:.1f} |")  # fmt: skip
    if options.json:
        options.json.write_text(json.dumps(results, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()

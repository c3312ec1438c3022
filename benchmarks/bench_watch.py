"""What watching costs: the same training step, plain and watched, side by side.

    python benchmarks/bench_watch.py [--rounds 40] [--steps 3] [--threads 2] [--device cuda] [--json FILE]

One process per way of watching. They take turns: in every round each runs the same few steps while the
others wait, in an order that rotates. Where a process lies in memory makes it some percent faster or slower for
as long as it lives: `--processes 5` starts all of them anew five times. Reported is the median over the rounds
of (time watched / time plain in the same round), so that a slow moment of the machine hits both; of the time on
the clock and of the processor time of the process. On a busy machine look at the latter, with one thread: with
more, it counts what torch's threads spend waiting for each other.
torch's DebugMode with the same content (inputs, outputs, modules, stacks) stands in the same table, and
msProbe (`pip install mindstudio-probe`) where it is installed.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from result_tables import Results, add_json_option

HERE = Path(__file__).resolve().parent
Times = dict[str, list[tuple[float, float]]]
"""By way of watching: seconds a step in each round, on the clock and of the processor."""
WAYS = ("plain", "nothing", "steps", "receipt", "ops", "python", "double", "guard", "debugmode", "msprobe")
SHOWN = {
    "plain": "not watched",
    "nothing": "a dispatch mode that does nothing",
    "steps": "samerun --trace steps",
    "receipt": "samerun run --receipt: steps, and what a receipt tells besides",
    "ops": "samerun --trace ops",
    "python": "samerun --trace ops, without native/watch",
    "double": "samerun check --double",
    "guard": "samerun.guard, every step computed twice",
    "debugmode": "torch DebugMode: hashes of inputs and outputs, modules, stacks",
    "msprobe": "msProbe mix, md5",
}


def work(name: str, way: str, threads: int, device: str) -> None:
    """Run in a child: on every line read, train so many steps and answer with the seconds they took, and the
    seconds of processor time."""
    if way == "python":
        sys.modules["samerun.record.watching._watch"] = None  # type: ignore[assignment]
    import torch

    sys.path.insert(0, str(HERE))
    from workloads import make_training

    torch.set_num_threads(threads)
    model, optimizer, step = make_training(name, device)
    done = 0
    debugger: Any = None
    if way == "guard":
        import samerun

        step = partial(samerun.guard(model, optimizer, every=1).step, step)
    if way == "msprobe":
        from msprobe.pytorch import PrecisionDebugger

        debugger = PrecisionDebugger(config_path=os.environ["BENCH_MSPROBE_CONFIG"])
    if way == "nothing":
        from torch.utils._python_dispatch import TorchDispatchMode

        class Nothing(TorchDispatchMode):
            def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
                return func(*args, **kwargs) if kwargs else func(*args)

        Nothing().__enter__()
    for line in sys.stdin:
        seconds = used = 0.0
        for _ in range(int(line)):
            with ExitStack() as stack:
                begin, begin_used = time.perf_counter(), time.process_time()
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
                if device == "cuda":
                    torch.cuda.synchronize()
                done += 1
            seconds += time.perf_counter() - begin
            used += time.process_time() - begin_used
        print(seconds, used, flush=True)


def watch_environment(name: str, way: str, folder: Path) -> dict[str, str]:
    """The variables with which a program is watched in this way; none where it is not."""
    if way not in ("steps", "receipt", "ops", "python", "double"):
        return {}
    from samerun.base.launch import bootstrap_folder
    from samerun.record.config import CONFIG_VARIABLE, WatchConfig

    traces = folder / f"{name}-{way}"
    traces.mkdir()
    depth = "steps" if way in ("steps", "receipt") else "ops"
    config = WatchConfig(folder=str(traces), depth=depth, receipt=way == "receipt")
    environment = {}
    if way == "double":
        config = replace(config, executions=2, fresh_memory="zeros")
        environment["MALLOC_PERTURB_"] = "255"
    (traces / "watch.json").write_text(config.to_json())
    environment[CONFIG_VARIABLE] = str(traces / "watch.json")
    environment["PYTHONPATH"] = os.pathsep.join(p for p in (str(bootstrap_folder()), os.environ.get("PYTHONPATH")) if p)
    return environment


def child(name: str, way: str, threads: int, folder: Path, device: str) -> subprocess.Popen[str]:
    environment = dict(os.environ, OMP_NUM_THREADS=str(threads), PYTHONHASHSEED="1")
    environment.update(watch_environment(name, way, folder))
    if way == "msprobe":
        probe = folder / f"{name}-msprobe.json"
        probe.write_text(
            json.dumps({"task": "statistics", "dump_path": str(folder / f"{name}-dump"), "level": "mix",
                        "rank": [], "step": [], "statistics": {"scope": [], "list": [], "data_mode": ["all"],
                                                               "summary_mode": "md5"}})
        )  # fmt: skip
        environment["BENCH_MSPROBE_CONFIG"] = str(probe)
    return subprocess.Popen(
        [sys.executable, str(HERE / "bench_watch.py"), "--work", name, way, str(threads), device],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment, cwd=folder,
        stderr=subprocess.DEVNULL if way == "msprobe" else None,
    )  # fmt: skip


def ask(process: subprocess.Popen[str], steps: int) -> tuple[float, float]:
    """Seconds a step: on the clock, and of the processor."""
    assert process.stdin is not None and process.stdout is not None
    process.stdin.write(f"{steps}\n")
    process.stdin.flush()
    while True:  # msProbe prints to standard output
        line = process.stdout.readline()
        if not line:
            raise SystemExit("a child of the benchmark ended early")
        try:
            seconds, used = map(float, line.split())
            return seconds / steps, used / steps
        except ValueError:
            continue


def measure(name: str, ways: list[str], rounds: int, steps: int, threads: int, folder: Path, device: str) -> Times:
    children = {way: child(name, way, threads, folder, device) for way in ways}
    for process in children.values():
        ask(process, 3)
    times: Times = {way: [] for way in ways}
    for number in range(rounds):
        turn = number % len(ways)
        for way in ways[turn:] + ways[:turn]:
            times[way].append(ask(children[way], steps))
    for process in children.values():
        assert process.stdin is not None
        process.stdin.close()
        process.wait()
    return times


def compared(times: Times) -> dict[str, Any]:
    return {
        way: {
            kind: ratios([t[at] for t in times[way]], [t[at] for t in times["plain"]])
            for at, kind in enumerate(("clock", "processor"))
        }
        for way in times
    }


def ratios(times: list[float], plain: list[float]) -> dict[str, Any]:
    found = sorted(a / b for a, b in zip(times, plain, strict=True))
    return {
        "ratio": statistics.median(found),
        "ratio_of_minima": min(times) / min(plain),
        "quartiles": [found[len(found) // 4], found[-1 - len(found) // 4]],
        "milliseconds": statistics.median(times) * 1e3,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--processes", type=int, default=1, help="so often all start anew; each makes these rounds")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--models", default="cnn,gpt", help="of cnn, gpt, mlp, lstm")
    parser.add_argument("--ways", default="all", help="comma-separated: " + ",".join(WAYS))
    add_json_option(parser)
    parser.add_argument("--work", nargs=4, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.device == "cuda":
        import torch

        if not torch.cuda.is_available():
            print("bench_watch: there is no CUDA device here.", file=sys.stderr)
            sys.exit(2)
    if options.work:
        name, way, threads, device = options.work
        work(name, way, int(threads), device)
        return
    ways = list(WAYS) if options.ways == "all" else list(dict.fromkeys(["plain", *options.ways.split(",")]))
    if importlib.util.find_spec("msprobe") is None and "msprobe" in ways:
        ways.remove("msprobe")
    with Results(options.json) as results:
        measure_models(results, options, ways)


def measure_models(results: Results, options: argparse.Namespace, ways: list[str]) -> None:
    for name in options.models.split(","):
        with tempfile.TemporaryDirectory() as folder:
            how = options.rounds, options.steps, options.threads
            times: Times = {way: [] for way in ways}
            for number in range(options.processes):
                part = Path(folder, str(number))
                part.mkdir(exist_ok=True)
                for way, made in measure(name, ways, *how, part, options.device).items():
                    times[way] += made
        table = results.table(
            f"{name}, {options.device}, {options.threads} threads, {options.processes} x {options.rounds} rounds",
            {"way, time": "", "ratio": ".3f", "quartiles": "", "of minima": ".3f", "ms/step": ".1f"},
        )
        for way, kinds in compared(times).items():
            for kind, r in kinds.items():
                low, high = r["quartiles"]
                quartiles = f"{low:.3f}-{high:.3f}"
                table.add(f"{SHOWN[way]}, {kind}", r["ratio"], quartiles, r["ratio_of_minima"], r["milliseconds"])


if __name__ == "__main__":
    main()

"""What a whole training step costs inside `samerun.portable()`, beside plain torch, in turns in one process.

    python benchmarks/bench_portable_steps.py [cnn gpt]

One thread: its CPU time; two threads: wall time. The fastest of many steps each; the last column is plain torch's time
divided by portable's. Measure on an idle machine.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import torch
from result_tables import Results, add_json_option
from workloads import make

import samerun

ROUNDS = 12


def fastest(
    plain: Callable[[int], object], portable: Callable[[int], object], clock: Callable[[], float]
) -> list[float]:
    best = [float("inf"), float("inf")]
    for i in range(ROUNDS):
        torch.manual_seed(i)  # plain draws in between would have the stream's position looked for again
        start = clock()
        plain(i)
        best[0] = min(best[0], clock() - start)
        torch.manual_seed(i)
        with samerun.portable():
            start = clock()
            portable(i)
            best[1] = min(best[1], clock() - start)
    return best


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", metavar="model", default=["cnn", "gpt"], help="cnn or gpt; both if none")
    add_json_option(parser)
    options = parser.parse_args()
    with Results(options.json) as results:
        columns = {"model, threads": "", "plain, ms": ".1f", "portable, ms": ".1f", "plain / portable": ".2f"}
        table = results.table("a training step in portable()", columns)
        for name in options.models:
            _, plain = make(name)
            with samerun.portable():
                _, portable = make(name)
            for threads, clock in ((1, time.thread_time), (2, time.perf_counter)):
                torch.set_num_threads(threads)
                a, b = fastest(plain, portable, clock)
                table.add(f"{name}, {threads}", a * 1e3, b * 1e3, a / b)


if __name__ == "__main__":
    main()

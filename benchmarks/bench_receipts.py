"""What receipts cost: comparing long runs, listing many receipts, digests of steps, and a fixed-order all-reduce.

    python benchmarks/bench_receipts.py compare [--steps 10000000]
    python benchmarks/bench_receipts.py index [--receipts 100000]
    python benchmarks/bench_receipts.py reduce [--ranks 2] [--floats 4000000] [--rounds 100]

What the digests of each step cost a training is `python benchmarks/bench_watch.py --ways steps`.
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from result_tables import Results, add_json_option

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "tests" / "support"))


def compare(results: Results, steps: int) -> None:
    """Two receipts of so many steps, of which the last differs; written, then compared by the command."""
    import numpy as np
    from sample_receipts import made, section

    from samerun.record.receipt import receipt_file
    from samerun.record.receipt.step_table import DIGEST_BYTES, EVIDENCE, VALUES, build_step_table

    table = results.table(f"receipts of {steps:,} steps", {"": "", "least, s": ".2f", "median, s": ".2f"})
    with tempfile.TemporaryDirectory() as folder:
        for name in "ab":
            tables = []
            for columns in (VALUES, EVIDENCE):
                words = DIGEST_BYTES // 8 * len(columns) * steps
                rows: Any = np.arange(words, dtype="<u8")
                if name == "b" and columns == VALUES:
                    rows[-1] += 1
                tables.append(build_step_table(columns, rows.tobytes()))
            one = section()
            vars(one).update(values=tables[0], evidence=tables[1])
            begin = time.perf_counter()
            receipt_file.write(Path(folder) / f"{name}.json", made(one))
            table.add(f"write receipt {name}", time.perf_counter() - begin, None)
        seconds = []
        for _ in range(3):
            begin = time.perf_counter()
            words = [sys.executable, "-m", "samerun", "diff", "--quiet", f"{folder}/a.json", f"{folder}/b.json"]
            assert subprocess.run(words).returncode == 1
            seconds.append(time.perf_counter() - begin)
        table.add("samerun diff of both", min(seconds), statistics.median(seconds))


def index(results: Results, count: int, steps: int) -> None:
    """A folder of so many receipts of so many steps each, listed by the command."""
    from sample_receipts import made, section

    from samerun.record.receipt.receipt_json import encode_with_sorted_keys_and_indent

    with tempfile.TemporaryDirectory() as folder:
        receipt = made(section(steps=steps)).receipt
        receipt["circumstances"]["began"] = "BEGAN"
        before, after = encode_with_sorted_keys_and_indent(receipt).split("BEGAN")
        for number in range(count):
            (Path(folder) / f"{number}.json").write_text(f"{before}2026-11-21T{number:012}{after}")
        table = results.table(
            f"samerun log of {count:,} receipts of {len(before) + len(after)} bytes",
            {"time": "", "s": ".2f", "CPU, s": ".2f"},
        )
        for what in ("first time", "second", "third", "fourth", "one is new", "again"):
            if what == "one is new":
                (Path(folder) / "new.json").write_text(f"{before}2026-11-22{after}")
            begin, cpu = time.perf_counter(), cpu_seconds()
            words = [sys.executable, "-m", "samerun", "log", folder]
            subprocess.run(words, check=True, stdout=subprocess.DEVNULL)
            table.add(what, time.perf_counter() - begin, cpu_seconds() - cpu)
            time.sleep(2)


def cpu_seconds() -> float:
    """Of the children that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


RANK = """
import os, sys, time
import torch, torch.distributed as dist
from samerun.control.ddp import ScratchBuffer, mean_over_ranks_in_place_as_future
torch.set_num_threads(1)
dist.init_process_group("gloo")
world, floats = dist.get_world_size(), int(sys.argv[1])
scratch = ScratchBuffer()
plain, tree = torch.randn(floats), torch.randn(floats)
times = {"plain": [], "tree": []}
for turn in range(int(sys.argv[2])):
    for name in ("plain", "tree") if turn % 2 else ("tree", "plain"):
        dist.barrier()
        begin = time.perf_counter()
        if name == "plain":
            dist.all_reduce(plain)
        else:
            mean_over_ranks_in_place_as_future(tree, dist.group.WORLD, world, scratch).wait()
        times[name].append(time.perf_counter() - begin)
if dist.get_rank() == 0:
    a, b = (sorted(times[name][4:]) for name in ("plain", "tree"))
    print(a[0] * 1e3, b[0] * 1e3, b[0] / a[0], b[len(b) // 2] / a[len(a) // 2])
dist.destroy_process_group()
"""


def reduce(results: Results, ranks: int, floats: int, rounds: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder) / "rank.py"
        program.write_text(RANK)
        words = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)]
        words += [str(program), str(floats), str(rounds)]
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        told = subprocess.run(words, check=True, env=environment, stdout=subprocess.PIPE, text=True).stdout
        table = results.table(
            f"all_reduce of {floats:,} floats, in any and in fixed order",
            {"ranks": "", "any, ms": ".1f", "fixed, ms": ".1f", "ratio of minima": ".2f", "of medians": ".2f"},
        )
        table.add(str(ranks), *map(float, told.split()))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("compare", "index", "reduce"))
    parser.add_argument("--steps", type=int, help="compare: 10 million; index: 60")
    parser.add_argument("--receipts", type=int, default=100_000)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--floats", type=int, default=4_000_000)
    parser.add_argument("--rounds", type=int, default=100)
    add_json_option(parser)
    options = parser.parse_args()
    with Results(options.json) as results:
        if options.what == "compare":
            compare(results, options.steps or 10_000_000)
        elif options.what == "index":
            index(results, options.receipts, options.steps or 60)
        else:
            reduce(results, options.ranks, options.floats, options.rounds)


if __name__ == "__main__":
    main()

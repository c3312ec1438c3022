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

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "tests" / "support"))


def compare(steps: int) -> None:
    """Two receipts of so many steps, of which the last differs; written, then compared by the command."""
    import numpy as np
    from sample_receipts import made, section

    from samerun.record.receipt import receipt_file
    from samerun.record.receipt.step_table import DIGEST_BYTES, EVIDENCE, VALUES, build_step_table

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
            print(f"write {steps} steps: {time.perf_counter() - begin:.2f} s")
        seconds = []
        for _ in range(3):
            begin = time.perf_counter()
            words = [sys.executable, "-m", "samerun", "diff", "--quiet", f"{folder}/a.json", f"{folder}/b.json"]
            assert subprocess.run(words).returncode == 1
            seconds.append(time.perf_counter() - begin)
        print(f"samerun diff of 2 x {steps} steps: {min(seconds):.2f} s, median {statistics.median(seconds):.2f} s")


def index(count: int, steps: int) -> None:
    """A folder of so many receipts of so many steps each, listed by the command."""
    from sample_receipts import made, section

    from samerun.record.receipt.receipt_json import encode_canonical

    with tempfile.TemporaryDirectory() as folder:
        receipt = made(section(steps=steps)).receipt
        receipt["circumstances"]["began"] = "BEGAN"
        before, after = encode_canonical(receipt).split("BEGAN")
        for number in range(count):
            (Path(folder) / f"{number}.json").write_text(f"{before}2026-11-21T{number:012}{after}")
        print(f"{count} receipts of {len(before) + len(after)} bytes")
        for what in ("first time", "second", "third", "fourth", "one is new", "again"):
            if what == "one is new":
                (Path(folder) / "new.json").write_text(f"{before}2026-11-22{after}")
            begin, cpu = time.perf_counter(), cpu_seconds()
            words = [sys.executable, "-m", "samerun", "log", folder]
            subprocess.run(words, check=True, stdout=subprocess.DEVNULL)
            print(f"samerun log, {what}: {time.perf_counter() - begin:.2f} s, CPU {cpu_seconds() - cpu:.2f} s")
            time.sleep(2)


def cpu_seconds() -> float:
    """Of the children that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


RANK = """
import os, sys, time
import torch, torch.distributed as dist
from samerun.control.ddp import ScratchBuffer, start_mean_over_ranks_in_place
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
            start_mean_over_ranks_in_place(tree, dist.group.WORLD, world, scratch).wait()
        times[name].append(time.perf_counter() - begin)
if dist.get_rank() == 0:
    a, b = (sorted(times[name][4:]) for name in ("plain", "tree"))
    print(f"{world} ranks, {floats} floats: all_reduce {a[0]*1e3:.1f} ms, in fixed order {b[0]*1e3:.1f} ms: "
          f"{b[0]/a[0]:.2f}x of minima, {b[len(b)//2]/a[len(a)//2]:.2f}x of medians")
dist.destroy_process_group()
"""


def reduce(ranks: int, floats: int, rounds: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder) / "rank.py"
        program.write_text(RANK)
        words = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)]
        words += [str(program), str(floats), str(rounds)]
        subprocess.run(words, check=True, env={**os.environ, "OMP_NUM_THREADS": "1"})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("compare", "index", "reduce"))
    parser.add_argument("--steps", type=int, help="compare: 10 million; index: 60")
    parser.add_argument("--receipts", type=int, default=100_000)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--floats", type=int, default=4_000_000)
    parser.add_argument("--rounds", type=int, default=100)
    options = parser.parse_args()
    if options.what == "compare":
        compare(options.steps or 10_000_000)
    elif options.what == "index":
        index(options.receipts, options.steps or 60)
    else:
        reduce(options.ranks, options.floats, options.rounds)


if __name__ == "__main__":
    main()

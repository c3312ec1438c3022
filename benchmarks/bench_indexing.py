"""What index_put_(accumulate=True), the gradient of tensor[indices], costs: `python benchmarks/bench_indexing.py [N]`.

On the CPU with N threads (1): torch's default way (which gives other bits in every run with more than one thread),
torch's deterministic way, and a `scatter_add_` of whole rows, which gives the bits of the deterministic one and may use
all threads. All run in one process, in turns, on the same data; the least processor time and the least wall time of a
call count. Measure on an idle machine. Why samerun leaves this operator to torch: docs/decisions/0026.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from functools import partial

import torch
from result_tables import Results, add_json_option

TURNS = 25
SHAPES = [
    (17, 64, 20_000), (1000, 64, 20_000), (50_000, 64, 20_000), (100, 1, 200_000), (1_000_000, 1, 200_000),
    (5000, 256, 2000), (1000, 16, 100),
]  # fmt: skip
"""Rows of the table, features, rows that are added."""


def clock(work: Callable[[], object]) -> tuple[float, float]:
    wall, cpu = time.perf_counter(), time.process_time()
    work()
    return time.perf_counter() - wall, time.process_time() - cpu


def indexed(table: torch.Tensor, index: torch.Tensor, values: torch.Tensor) -> None:
    table.index_put_((index,), values, accumulate=True)


def scattered(table: torch.Tensor, index: torch.Tensor, values: torch.Tensor) -> None:
    """With the checks that a stand-in needs: indices may be negative, and must lie inside."""
    low, high = torch.aminmax(index)
    assert int(low) >= -len(table) and int(high) < len(table)
    rows = torch.where(index < 0, index + len(table), index)
    table.scatter_add_(0, rows.unsqueeze(1).expand_as(values), values)


def measure(rows: int, features: int, count: int) -> list[tuple[float, float]]:
    generator = torch.Generator().manual_seed(0)
    index = torch.randint(0, rows, (count,), generator=generator)
    values = torch.randn(count, features, generator=generator)
    table = torch.zeros(rows, features)
    least = [(float("inf"), float("inf"))] * 3
    bits: list[torch.Tensor] = [table] * 3
    for _ in range(TURNS):
        for way, work in enumerate([indexed, indexed, scattered]):
            torch.use_deterministic_algorithms(way > 0)
            wall, cpu = clock(partial(work, table, index, values))
            least[way] = min(least[way][0], wall), min(least[way][1], cpu)
            bits[way] = table.clone()
            table.zero_()
    assert torch.equal(bits[1], bits[2]), "the bits are those of torch's deterministic way"
    return least


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("threads", nargs="?", type=int, default=1, metavar="N")
    add_json_option(parser)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    columns = {"rows x features, added": ""}
    for kind in ("time", "CPU"):
        columns |= {f"{way}, {kind}, ms": ".2f" for way in ("default", "deterministic", "scatter_add")}
        columns[f"scatter_add / deterministic, {kind}"] = ".2f"
    with Results(options.json) as results:
        table = results.table(f"rows added to a table, {torch.get_num_threads()} thread(s)", columns)
        for shape in SHAPES:
            ways = measure(*shape)
            cells: list[float] = []
            for kind in (0, 1):
                default, theirs, ours = (way[kind] * 1e3 for way in ways)
                cells += [default, theirs, ours, ours / theirs]
            table.add("{} x {}, {}".format(*shape), *cells)


if __name__ == "__main__":
    main()

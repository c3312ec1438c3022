"""Products of matrices and convolutions, ours against torch's, in turns in one process.

    python benchmarks/bench_portable_matrix.py [part of a name]

One thread: its CPU time; two threads: wall time. The fastest of many runs each; the last column is torch's time
divided by ours. Freed memory is kept, for both alike. Measure on an idle machine.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import torch
import torch.nn.functional as F
from memory import keep_memory
from result_tables import Results, add_json_option

from samerun.numerics.kernels import linear_algebra

SECONDS = 0.7
Work = tuple[str, Callable[[], object], Callable[[], object]]


def matrices() -> list[Work]:
    found: list[Work] = []
    for n in (256, 512, 1024, 2048):
        a, b = torch.randn(n, n), torch.randn(n, n)
        found.append((f"mm {n}", lambda a=a, b=b: torch.mm(a, b), lambda a=a, b=b: linear_algebra.matmul(a, b)))
    for rows, wide, out in ((32, 4096, 4096), (1, 4096, 4096), (1, 784, 256), (1024, 1024, 1024)):
        x, w, bias = torch.randn(rows, wide), torch.randn(out, wide), torch.randn(out)
        found.append(
            (
                f"linear {rows}x{wide}->{out}",
                lambda x=x, w=w, bias=bias: F.linear(x, w, bias),
                lambda x=x, w=w, bias=bias: linear_algebra.matmul(x, w.t(), bias),
            )
        )
    g, x, w = torch.randn(32, 4096), torch.randn(32, 4096), torch.randn(4096, 4096)
    found.append(("linear 32x4096 grad_input", lambda: torch.mm(g, w), lambda: linear_algebra.matmul(g, w)))
    found.append(("linear 32x4096 grad_weight", lambda: torch.mm(g.t(), x), lambda: linear_algebra.matmul(g.t(), x)))
    q, k = torch.randn(32, 128, 64), torch.randn(32, 128, 64)
    found.append(("bmm 32x128x64x128", lambda: torch.bmm(q, k.mT), lambda: linear_algebra.matmul(q, k.mT)))
    return found


def convolutions() -> list[Work]:
    found: list[Work] = []
    for n, c, size, out, taps, stride in (
        (8, 64, 32, 64, 3, 1), (64, 32, 16, 64, 3, 1), (8, 256, 14, 256, 3, 1), (8, 64, 56, 64, 1, 1),
        (8, 64, 56, 128, 3, 2), (8, 3, 64, 64, 7, 2),
        # small images, few channels, first layers
        (16, 512, 7, 512, 3, 1), (16, 64, 10, 64, 3, 1), (64, 32, 8, 32, 3, 1), (64, 32, 16, 64, 3, 2),
        (32, 16, 28, 32, 3, 1), (32, 3, 32, 32, 3, 1), (64, 1, 28, 16, 3, 1),
    ):  # fmt: skip
        pad = (taps // 2, taps // 2)
        x, w = torch.randn(n, c, size, size), torch.randn(out, c, taps, taps)
        g = torch.randn_like(F.conv2d(x, w, None, stride, pad))
        plain = (stride, stride), pad, (1, 1)
        name = f"conv2d {n}x{c}x{size}x{size} {out} {taps}x{taps}/{stride}"

        def theirs(mask: list[bool], g=g, x=x, w=w, plain=plain) -> object:
            return torch.ops.aten.convolution_backward(g, x, w, None, *plain, False, [0, 0], 1, mask)

        found += [
            (
                f"{name} forward",
                lambda x=x, w=w, plain=plain: F.conv2d(x, w, None, *plain),
                lambda x=x, w=w, g=g, plain=plain: linear_algebra.convolve(0, x, w, list(g.shape), None, *plain, 1),
            ),
            (
                f"{name} grad_input",
                lambda theirs=theirs: theirs([True, False, False]),
                lambda x=x, w=w, g=g, plain=plain: linear_algebra.convolve(1, list(x.shape), w, g, None, *plain, 1),
            ),
            (
                f"{name} grad_weight",
                lambda theirs=theirs: theirs([False, True, False]),
                lambda x=x, w=w, g=g, plain=plain: linear_algebra.convolve(2, x, list(w.shape), g, None, *plain, 1),
            ),
        ]
    return found


def fastest(works: list[Callable[[], object]], clock: Callable[[], float]) -> list[float]:
    best = [float("inf")] * len(works)
    end = time.perf_counter() + SECONDS
    while time.perf_counter() < end:
        for i, work in enumerate(works):
            start = clock()
            work()
            best[i] = min(best[i], clock() - start)
    return best


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", nargs="?", default="", help="only what has this in its name")
    add_json_option(parser)
    options = parser.parse_args()
    keep_memory()
    columns = {"product": ""}
    for threads in (1, 2):
        said = f"{threads} thread{'s' if threads > 1 else ''}"
        columns |= {f"torch, {said}, ms": ".3f", f"portable, {said}, ms": ".3f", f"torch / portable, {said}": ".2f"}
    with Results(options.json) as results:
        table = results.table("products and convolutions", columns)
        for name, theirs, ours in matrices() + convolutions():
            if options.part not in name:
                continue
            cells: list[float] = []
            for threads, clock in ((1, time.thread_time), (2, time.perf_counter)):
                torch.set_num_threads(threads)
                theirs(), ours()
                a, b = fastest([theirs, ours], clock)
                cells += [a * 1e3, b * 1e3, a / b]
            table.add(name, *cells)


if __name__ == "__main__":
    main()

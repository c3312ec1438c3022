"""How fast compositions are beside plain torch: `python benchmarks/bench_portable_compositions.py [NAME...]`.

Forward and backward, in turns in one process with one thread, on the same data; the least CPU time of a call counts.
A ratio of 1.0 is torch's speed, 0.1 a tenth of it. Measure on an idle machine.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.nn.functional as F
from result_tables import Results, add_json_option
from torch import Tensor

import samerun

TURNS, SECONDS = 5, 0.5
Case = tuple[str, Callable[..., Any], list[Tensor]]


def cases() -> Iterator[Case]:
    torch.manual_seed(0)
    image, grid = torch.randn(8, 32, 64, 64), torch.rand(8, 64, 64, 2) * 2.2 - 1.1
    words, starts = torch.randint(0, 10000, (40000,)), torch.arange(0, 40000, 20)
    rows, labels = torch.randn(2048, 1000), torch.randint(0, 1000, (2048,))
    yield "weight_norm", torch._weight_norm, [torch.randn(1024, 1024), torch.rand(1024, 1)]
    for mode in ("sum", "mean", "max"):
        yield (
            f"embedding_bag {mode}",
            lambda t, mode=mode: F.embedding_bag(words, t, starts, mode=mode),
            [torch.randn(10000, 64)],
        )
    yield (
        "embedding_bag sum, no gradient",
        lambda t: F.embedding_bag(words, t.detach(), starts, mode="sum"),
        [torch.randn(10000, 64)],
    )
    for mode in ("bilinear", "nearest", "bicubic"):
        yield f"grid_sample {mode}", lambda x, g, mode=mode: F.grid_sample(x, g, mode, align_corners=False), [
            image, grid,
        ]  # fmt: skip
    for p in (2.0, 1.0):
        yield f"cdist {p:g}, 16 features", lambda a, b, p=p: torch.cdist(a, b, p), [
            torch.randn(500, 16), torch.randn(500, 16),
        ]  # fmt: skip
    yield "cdist 2, 256 features", torch.cdist, [torch.randn(500, 256), torch.randn(500, 256)]
    yield "median of rows", lambda x: x.median(1)[0], [rows]
    yield "kthvalue of rows", lambda x: x.kthvalue(300, 1)[0], [rows]
    yield "mode of rows", lambda x: x.round().mode(1)[0], [rows]
    yield "histc", lambda x: x.detach().histc(100), [rows]
    yield "softshrink", F.softshrink, [rows]
    yield "soft_margin", lambda x: F.soft_margin_loss(x, torch.ones_like(x)), [rows]
    yield "multi_margin", lambda x: F.multi_margin_loss(x, labels), [rows]
    spoken = labels[:640].reshape(32, 20) % 59 + 1
    yield "ctc", lambda x: F.ctc_loss(x.log_softmax(-1), spoken, [150] * 32, [20] * 32), [torch.randn(150, 32, 60)]
    yield "logcumsumexp", lambda x: x.logcumsumexp(1), [rows[:256]]
    yield "bilinear form", F.bilinear, [torch.randn(64, 64), torch.randn(64, 64), torch.randn(32, 64, 64)]
    yield "bicubic", lambda x: F.interpolate(x, scale_factor=2, mode="bicubic"), [image]
    for mode in ("bilinear", "bicubic"):
        yield (
            f"{mode} antialiased, down",
            lambda x, mode=mode: F.interpolate(x, (28, 28), mode=mode, antialias=True),
            [image],
        )
    yield "max_unpool2d", lambda x: F.max_unpool2d(*F.max_pool2d(x, 2, return_indices=True), 2), [image]
    yield "hann_window", lambda: torch.hann_window(4096), []


def step(function: Callable[..., Any], inputs: list[Tensor]) -> None:
    out = function(*(x.detach().requires_grad_() for x in inputs))
    if out.requires_grad:
        out.sum().backward()


def least(call: Callable[[], object], best: float) -> float:
    """The least time of a call, for a while."""
    end = time.monotonic() + SECONDS / TURNS
    while True:
        start = time.process_time()
        call()
        best = min(best, time.process_time() - start)
        if time.monotonic() > end:
            return best


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="name", help="only what begins so")
    add_json_option(parser)
    options = parser.parse_args()
    torch.set_num_threads(1)
    with Results(options.json) as results:
        table = results.table(
            "compositions, forward and backward, CPU time, 1 thread",
            {"call": "", "portable, ms": ".2f", "torch, ms": ".2f", "torch / portable": ".3f"},
        )
        for name, function, inputs in cases():
            if options.names and not any(name.startswith(wanted) for wanted in options.names):
                continue
            mine = other = float("inf")
            for _ in range(TURNS):
                with samerun.portable():
                    mine = least(lambda f=function, x=inputs: step(f, x), mine)
                other = least(lambda f=function, x=inputs: step(f, x), other)
            table.add(name, mine * 1e3, other * 1e3, other / mine)


if __name__ == "__main__":
    main()

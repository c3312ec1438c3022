"""What deterministic operators cost on CUDA: `python benchmarks/bench_cuda.py [NAME...]`.

Each is timed beside torch's own kernel in its default mode, which adds in the order of the threads, and beside torch's
own deterministic one where there is one. All run in one process, in turns, on the same data; the least time of a call
by the device's clock counts. A ratio of 2.0 is half the speed of torch's default kernel. Exit code 2 without CUDA.

Two more parts: `python benchmarks/bench_cuda.py portable [NAME...]`, what `portable()` costs on CUDA
(bench_cuda_portable.py), and `python benchmarks/bench_cuda.py watch`, what watching costs there (bench_watch.py).
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import bench_cuda_portable
import torch
import torch.nn.functional as nnf
from cuda_clock import TURNS, CaseInputs, Work, least, milliseconds

from samerun.control.deterministic_kernels import install

MakeWork = Callable[[CaseInputs], Work]


def pooled_indices(draw: CaseInputs) -> tuple[torch.Tensor, torch.Tensor]:
    return nnf.max_pool2d(draw.randn(draw.part(32), 64, 64, 64), 2, return_indices=True)


def unpool(draw: CaseInputs) -> Work:
    pooled, places = pooled_indices(draw)
    return lambda: nnf.max_unpool2d(pooled, places, 2)


def nll_loss2d(draw: CaseInputs) -> Work:
    count = draw.part(16)
    logits, target = draw.randn(count, 21, 128, 128), draw.randint(0, 21, (count, 128, 128))
    return lambda: nnf.nll_loss(logits, target)


def ctc_loss(draw: CaseInputs) -> Work:
    count = draw.part(16)
    words, lengths, goals = draw.randint(1, 40, (count, 60)), torch.tensor([200] * count), torch.tensor([50] * count)
    return draw.gradient(lambda x: nnf.ctc_loss(x.log_softmax(2), words, lengths, goals), 200, count, 40)


def grid_sample(draw: CaseInputs) -> Work:
    count = draw.part(16)
    grid = draw.rand(count, 64, 64, 2) * 2 - 1
    return draw.gradient(lambda x: nnf.grid_sample(x, grid, align_corners=False), count, 64, 64, 64)


def embedding_bag_max(draw: CaseInputs) -> Work:
    pairs = draw.randint(0, 5000, (draw.part(4000), 10))
    return draw.gradient(lambda w: nnf.embedding_bag(pairs, w, mode="max"), 5000, 64)


CROWDED: dict[str, Callable[[torch.Tensor, torch.Tensor, torch.Tensor], object]] = {
    "put": lambda i, v, c: c.put_(i, v),
    "put accumulate": lambda i, v, c: torch.zeros_like(c).put_(i, v, accumulate=True),
    "bincount": lambda i, v, c: torch.bincount(i, v),
    "scatter_reduce prod": lambda i, v, c: c.scatter_reduce(0, i, v, "prod"),
    "index_reduce mean": lambda i, v, c: c.index_reduce(0, i, v, "mean"),
}


def crowded(name: str, cells: int, draw: CaseInputs) -> Work:
    """Many values that go to few cells, or to as many."""
    count = draw.part(1_000_000)
    cells = min(cells, count)
    index, values, target = draw.randint(0, cells, (count,)), draw.randn(count), draw.rand(cells) + 0.5
    return lambda: CROWDED[name](index, values, target)


def of_row(function: Callable[[torch.Tensor], object], draw: CaseInputs) -> Work:
    x = draw.randn(draw.part(2000) * 2000)
    return lambda: function(x)


def pooling(function: Callable[[torch.Tensor], torch.Tensor], count: int, shape: tuple[int, ...]) -> MakeWork:
    return lambda draw: draw.gradient(function, draw.part(count), *shape)


bilinear = torch.ops.aten.upsample_bilinear2d
CASES: dict[str, MakeWork] = {
    "avg_pool3d": pooling(lambda x: nnf.avg_pool3d(x, 3, 1), 8, (32, 32, 32, 32)),
    "adaptive_avg_pool": pooling(lambda x: nnf.adaptive_avg_pool2d(x, (9, 9)), 32, (64, 64, 64)),
    "max_pool adaptive": pooling(lambda x: nnf.adaptive_max_pool2d(x, (33, 33)), 32, (64, 64, 64)),
    "max_pool 3d": pooling(lambda x: nnf.max_pool3d(x, 3, 2, 1), 8, (32, 32, 32, 32)),
    "interpolate bicubic": pooling(lambda x: nnf.interpolate(x, scale_factor=2, mode="bicubic"), 16, (64, 64, 64)),
    "interpolate bilinear": pooling(lambda x: bilinear(x, [128, 128], False), 16, (64, 64, 64)),
    "reflection_pad": pooling(lambda x: nnf.pad(x, (8, 8, 8, 8), mode="reflect"), 32, (64, 64, 64)),
    "replication_pad": pooling(lambda x: torch.ops.aten.replication_pad2d(x, [8, 8, 8, 8]), 32, (64, 64, 64)),
    "grid_sample": grid_sample,
    "max_unpool": unpool,
    "nll_loss2d": nll_loss2d,
    "ctc_loss": ctc_loss,
    "embedding_bag_max": embedding_bag_max,
    **{f"{name}, {cells} cells": partial(crowded, name, cells) for cells in (100, 1_000_000) for name in CROWDED},
    "histc": partial(of_row, lambda x: torch.histc(x, 100, -4, 4)),
    "cumsum 4M": partial(of_row, lambda x: x.cumsum(0)),
    "cumsum 2000x2000": partial(of_row, lambda x: x.view(-1, 2000).cumsum(1)),
    "median": partial(of_row, lambda x: x.view(-1, 2000).median(1)),
    "kthvalue": partial(of_row, lambda x: x.view(-1, 2000).kthvalue(500, 1)),
}
"""What is measured, by the beginning of the name of its operator. Inputs are made when a case is asked for."""


def torch_default(work: Work) -> float | None:
    torch.use_deterministic_algorithms(False)
    return milliseconds(work)


def torch_deterministic(work: Work) -> float | None:
    """None where torch has none."""
    torch.use_deterministic_algorithms(True)
    try:
        return milliseconds(work)
    except RuntimeError as refused:
        if "does not have a deterministic implementation" not in str(refused):
            raise
        return None


def ours(work: Work) -> float | None:
    torch.use_deterministic_algorithms(True)
    install.install()
    try:
        return milliseconds(work)
    finally:
        install.uninstall()


def main(names: list[str]) -> int:
    if not torch.cuda.is_available():
        print("bench_cuda: there is no CUDA device here, and nothing else can stand in for one.", file=sys.stderr)
        return 2
    if names[:1] == ["portable"]:
        return bench_cuda_portable.main(names[1:])
    if names[:1] == ["watch"]:
        watch = Path(__file__).with_name("bench_watch.py")
        return subprocess.run([sys.executable, watch, "--device", "cuda", "--ways", "nothing,steps,ops"]).returncode
    print(f"torch {torch.__version__}, {torch.cuda.get_device_name()}; milliseconds a call, least of {TURNS}")
    print(f"{'':32} {'default':>10} {'determ.':>10} {'samerun':>10} {'samerun / default':>18}")
    for name, make_work in CASES.items():
        if names and not any(name.startswith(each) for each in names):
            continue
        torch.manual_seed(0)
        work = make_work(CaseInputs())
        default, deterministic, mine = least(work, (torch_default, torch_deterministic, ours))
        assert default is not None and mine is not None
        theirs = "none" if deterministic is None else f"{deterministic:.3f}"
        print(f"{name:32} {default:10.3f} {theirs:>10} {mine:10.3f} {mine / default:18.2f}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

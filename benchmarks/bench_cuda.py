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
from collections.abc import Callable, Iterator
from pathlib import Path

import bench_cuda_portable
import torch
import torch.nn.functional as nnf
from cuda_clock import TURNS, Work, least, milliseconds

from samerun.control.deterministic_kernels import install

Case = tuple[str, Work]


def backward(function: Callable[[torch.Tensor], torch.Tensor], *shape: int) -> Work:
    """The gradient alone: the forward pass is done once, outside."""
    x = torch.randn(*shape, device="cuda", requires_grad=True)
    out = function(x)
    weight = torch.randn_like(out)
    return lambda: torch.autograd.grad(out, x, weight, retain_graph=True)


def cases() -> Iterator[Case]:
    """Each makes its inputs only when it is reached, so that they do not all lie in memory at once."""
    yield "avg_pool3d", backward(lambda x: nnf.avg_pool3d(x, 3, 1), 8, 32, 32, 32, 32)
    yield "adaptive_avg_pool", backward(lambda x: nnf.adaptive_avg_pool2d(x, (9, 9)), 32, 64, 64, 64)
    yield "max_pool adaptive", backward(lambda x: nnf.adaptive_max_pool2d(x, (33, 33)), 32, 64, 64, 64)
    yield "max_pool 3d", backward(lambda x: nnf.max_pool3d(x, 3, 2, 1), 8, 32, 32, 32, 32)
    yield "interpolate bicubic", backward(lambda x: nnf.interpolate(x, scale_factor=2, mode="bicubic"), 16, 64, 64, 64)
    bilinear = torch.ops.aten.upsample_bilinear2d
    yield "interpolate bilinear", backward(lambda x: bilinear(x, [128, 128], False), 16, 64, 64, 64)
    yield "reflection_pad", backward(lambda x: nnf.pad(x, (8, 8, 8, 8), mode="reflect"), 32, 64, 64, 64)
    yield "replication_pad", backward(lambda x: torch.ops.aten.replication_pad2d(x, [8, 8, 8, 8]), 32, 64, 64, 64)
    grid = torch.rand(16, 64, 64, 2, device="cuda") * 2 - 1
    yield "grid_sample", backward(lambda x: nnf.grid_sample(x, grid, align_corners=False), 16, 64, 64, 64)
    pooled, places = nnf.max_pool2d(torch.randn(32, 64, 64, 64, device="cuda"), 2, return_indices=True)
    yield "max_unpool", lambda: nnf.max_unpool2d(pooled, places, 2)
    logits, target = torch.randn(16, 21, 128, 128, device="cuda"), torch.randint(0, 21, (16, 128, 128), device="cuda")
    yield "nll_loss2d", lambda: nnf.nll_loss(logits, target)
    words, lengths, goals = torch.randint(1, 40, (16, 60), device="cuda"), [200] * 16, [50] * 16
    yield (
        "ctc_loss",
        backward(
            lambda x: nnf.ctc_loss(x.log_softmax(2), words, torch.tensor(lengths), torch.tensor(goals)), 200, 16, 40
        ),
    )
    pairs = torch.randint(0, 5000, (4000, 10), device="cuda")
    yield "embedding_bag_max", backward(lambda w: nnf.embedding_bag(pairs, w, mode="max"), 5000, 64)
    for crowded in (100, 1_000_000):
        index, values = torch.randint(0, crowded, (1_000_000,), device="cuda"), torch.randn(1_000_000, device="cuda")
        cells = torch.ones(crowded, device="cuda")
        where = f"{crowded} cells"
        yield f"put, {where}", lambda i=index, v=values, c=cells: c.put_(i, v)
        yield f"put accumulate, {where}", lambda i=index, v=values, c=cells: c.put_(i, v, accumulate=True)
        yield f"bincount, {where}", lambda i=index, v=values: torch.bincount(i, v)
        yield f"scatter_reduce prod, {where}", lambda i=index, v=values, c=cells: c.scatter_reduce(0, i, v, "prod")
        yield f"index_reduce mean, {where}", lambda i=index, v=values, c=cells: c.index_reduce(0, i, v, "mean")
    x = torch.randn(4_000_000, device="cuda")
    yield "histc", lambda: torch.histc(x, 100, -4, 4)
    yield "cumsum 4M", lambda: x.cumsum(0)
    yield "cumsum 2000x2000", lambda: x.view(2000, 2000).cumsum(1)
    yield "median", lambda: x.view(2000, 2000).median(1)
    yield "kthvalue", lambda: x.view(2000, 2000).kthvalue(500, 1)


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
    for name, work in cases():
        if names and not any(name.startswith(each) for each in names):
            continue
        default, deterministic, mine = least(work, (torch_default, torch_deterministic, ours))
        assert default is not None and mine is not None
        theirs = "none" if deterministic is None else f"{deterministic:.3f}"
        print(f"{name:32} {default:10.3f} {theirs:>10} {mine:10.3f} {mine / default:18.2f}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""Cases of the table of operators whose kernels are compositions: name, function, inputs in float64.

Each is run in float32 inside `portable()` and compared with torch's own float64, values and gradients. As a program,
with a number of threads: prints a digest of each, and of larger ones that torch would share between threads.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

Case = tuple[str, Callable[..., Any], list[Any]]


def real(*shape: int, low: float = -2.0, high: float = 2.0, seed: int = 0) -> Tensor:
    return torch.from_numpy(np.random.default_rng(seed + sum(shape)).uniform(low, high, shape))


def whole(*shape: int, high: int = 4, seed: int = 0) -> Tensor:
    return torch.from_numpy(np.random.default_rng(seed).integers(0, high, shape))


IMAGE, VOLUME = real(2, 3, 5, 6), real(2, 2, 3, 4, 5)
GRID, GRID3 = real(2, 4, 7, 2, low=-1.4, high=1.4), real(2, 3, 2, 4, 3, low=-1.4, high=1.4)
BAGS, ENDED = torch.tensor([0, 2, 2, 5]), torch.tensor([0, 2, 2, 5, 9])
INDICES = torch.tensor([1, 3, 0, 1, 1, 2, 3, 1, 0])
SIGNS = torch.where(real(3, 7, seed=3) > 0, 1.0, -1.0).double()
SAMPLES = real(2, 3, 2, low=0.0, high=1.0)


def bags(table: Tensor, weights: Tensor | None = None, **options: Any) -> Tensor:
    offsets = options.pop("offsets", BAGS)
    return F.embedding_bag(INDICES, table, offsets, per_sample_weights=weights, **options)


def sampled(mode: str, padding: str, align: bool) -> Callable[..., Tensor]:
    return lambda x, grid: F.grid_sample(x, grid, mode, padding, align)


def weight_normed(dim: int | None) -> Callable[..., Tensor]:
    return lambda v, g: torch._weight_norm(v, g, dim)


def ctc(targets: Tensor, **options: Any) -> Callable[[Tensor], Tensor]:
    inputs, sizes = torch.tensor([9, 6, 8]), torch.tensor([3, 1, 4])
    if options.pop("flat", False):
        targets = torch.cat([line[:size] for line, size in zip(targets, sizes, strict=True)])
    return lambda x: F.ctc_loss(x.log_softmax(-1), targets, inputs, sizes, **options)


LABELS = torch.tensor([[1, 1, 2, 3], [4, 1, 1, 1], [2, 3, 2, 4]])
SEVERAL = torch.tensor([[2, 0, -1, 1, 3, 3, 3], [-1, 0, 1, 2, 3, 4, 5], [6, 5, 4, 3, 2, 1, 0]])
X, Y = real(3, 7), real(3, 7, seed=1)
TIED = torch.tensor([[3.0, 1.0, 1.0, 2.0, 1.0], [2.0, 2.0, -1.0, -1.0, 5.0], [0.0, 7.0, 7.0, 0.0, 7.0]]).double()

CASES: list[Case] = [
    *((f"weight_norm {dim}", weight_normed(dim), [real(4, 3, 2), g])
      for dim, g in ((0, real(4, 1, 1)), (2, real(1, 1, 2)), (1, real(1, 3, 1)))),
    ("weight_norm line", weight_normed(0), [real(4), real(4, seed=2)]),
    *((f"embedding_bag {mode}", lambda t, mode=mode: bags(t, mode=mode), [real(4, 3)])
      for mode in ("sum", "mean", "max")),
    *((f"embedding_bag {mode} options",
       lambda t, mode=mode: bags(t, mode=mode, padding_idx=1, include_last_offset=True, offsets=ENDED), [real(4, 3)])
      for mode in ("sum", "mean", "max")),
    ("embedding_bag weights", lambda t, w: bags(t, w, mode="sum"), [real(4, 3), real(9)]),
    ("embedding_bag weights padding", lambda t, w: bags(t, w, mode="sum", padding_idx=3), [real(4, 3), real(9)]),
    ("embedding_bag rows", lambda t: F.embedding_bag(whole(5, 40), t, mode="sum"), [real(4, 33)]),
    *((f"embedding_bag int32 {mode}", lambda t, mode=mode: F.embedding_bag(
        INDICES.int(), t, BAGS.int(), mode=mode, padding_idx=2), [real(4, 3)]) for mode in ("sum", "max")),
    ("embedding_bag forward alone", lambda t: bags(t.detach(), mode="mean"), [real(4, 3)]),
    ("embedding_bag dense", lambda t: torch.ops.aten._embedding_bag_dense_backward(
        t.detach(), whole(6), torch.tensor([0, 0, 1, 1, 3, 3]), torch.tensor([2, 2, 0, 2]), torch.tensor([2, 2, 0, 2]),
        4, False, 0, None), [real(4, 3)]),
    *((f"grid_sample {mode} {padding} {align}", sampled(mode, padding, align), [IMAGE, GRID])
      for mode in ("bilinear", "nearest", "bicubic") for padding in ("zeros", "border", "reflection")
      for align in (False, True)),
    *((f"grid_sample 3d {mode} {padding} {align}", sampled(mode, padding, align), [VOLUME, GRID3])
      for mode in ("bilinear", "nearest") for padding in ("zeros", "border", "reflection") for align in (False, True)),
    ("grid_sample of one pixel", sampled("bilinear", "reflection", True), [real(2, 3, 1, 4), GRID]),
    ("grid_sample of the image alone", lambda x: sampled("bilinear", "zeros", False)(x, GRID.to(x.dtype)), [IMAGE]),
    *((f"affine_grid {align}", lambda t, align=align: F.affine_grid(t, [2, 1, 4, 5], align), [real(2, 2, 3)])
      for align in (False, True)),
    ("affine_grid 3d", lambda t: F.affine_grid(t, [2, 1, 3, 1, 5], False), [real(2, 3, 4)]),
    *((f"cdist {p}", lambda a, b, p=p: torch.cdist(a, b, p), [real(2, 4, 3), real(2, 5, 3)])
      for p in (2.0, 1.0, float("inf"), 3.0, 1.5, 0.0)),
    ("cdist broadcast", torch.cdist, [real(4, 3), real(2, 5, 3)]),
    ("cdist of many rows", torch.cdist, [real(30, 40), real(28, 40)]),
    ("pdist", F.pdist, [real(6, 3)]),
    ("pdist 1", lambda a: F.pdist(a, 1.0), [real(6, 3)]),
    ("median", torch.median, [X]),
    ("nanmedian", torch.nanmedian, [X]),
    *((f"{name} {dim}", lambda a, name=name, dim=dim: getattr(torch, name)(a, dim)[0], [x])
      for name in ("median", "nanmedian") for dim, x in ((0, X), (1, X), (-2, real(3, 4, 5)))),
    ("kthvalue", lambda a: a.kthvalue(3, 0, True)[0], [real(5, 4, 3)]),
    ("mode", lambda a: a.detach().mode(1)[0], [TIED]),
    ("histc", lambda a: a.detach().histc(7, -1.5, 1.25), [X]),
    ("histc of all", lambda a: a.detach().histc(9), [X]),
    ("masked_scatter", lambda a, b: a.masked_scatter(torch.tensor([True, False, True] * 2 + [False]), b), [X, Y]),
    *((name, getattr(F, name), [X]) for name in ("softshrink", "hardshrink")),
    ("softshrink 0.2", lambda a: F.softshrink(a, 0.2), [X]),
    *((f"soft_margin {reduction}", lambda a, r=reduction: F.soft_margin_loss(a, SIGNS.to(a.dtype), reduction=r), [X])
      for reduction in ("none", "mean", "sum")),
    *((f"multi_margin {reduction} {p}", lambda a, r=reduction, p=p: F.multi_margin_loss(
        a, torch.tensor([2, 0, 6]), p, 0.7, reduction=r), [X])
      for reduction in ("none", "mean", "sum") for p in (1, 2)),
    ("multi_margin weights", lambda a, w: F.multi_margin_loss(a, torch.tensor([2, 0, 6]), 2, weight=w.detach()),
     [X, real(7, low=0.5)]),
    ("multi_margin of one", lambda a: F.multi_margin_loss(a, torch.tensor(2)), [real(7)]),
    *((f"multilabel_margin {reduction}", lambda a, r=reduction: F.multilabel_margin_loss(a, SEVERAL, reduction=r), [X])
      for reduction in ("none", "mean", "sum")),
    ("multilabel_margin of one", lambda a: F.multilabel_margin_loss(a, SEVERAL[0]), [real(7)]),
    *((f"ctc {reduction}", ctc(LABELS, reduction=reduction), [real(9, 3, 6)]) for reduction in ("none", "mean", "sum")),
    ("ctc of any numbers", lambda a: F.ctc_loss(a, LABELS, [9, 6, 8], [3, 1, 4], reduction="sum"), [real(9, 3, 6)]),
    ("ctc flat", ctc(LABELS, flat=True), [real(9, 3, 6)]),
    ("ctc another blank", ctc(LABELS, blank=5), [real(9, 3, 6)]),
    ("ctc of no path", lambda a: F.ctc_loss(a.log_softmax(-1), LABELS[:2], [3, 9], [4, 2], zero_infinity=True),
     [real(9, 2, 6)]),
    ("ctc of nothing", lambda a: F.ctc_loss(a.log_softmax(-1), LABELS[:2], [5, 9], [0, 0], reduction="sum"),
     [real(9, 2, 6)]),
    ("logcumsumexp", lambda a: a.logcumsumexp(1), [X]),
    ("logcumsumexp long", lambda a: a.logcumsumexp(0), [real(257, 2)]),
    ("_logcumsumexp", lambda a: torch.ops.aten._logcumsumexp(a.detach(), 0), [X]),
    ("cross", torch.linalg.cross, [real(4, 3), real(4, 3, seed=1)]),
    ("cross along 0", lambda a, b: torch.linalg.cross(a, b, dim=0), [real(3, 4), real(3, 4, seed=1)]),
    ("bilinear form", F.bilinear, [real(5, 3), real(5, 4), real(2, 3, 4), real(2)]),
    ("sinc", lambda a: torch.sinc(a), [real(3, 7, low=0.1)]),
    ("logspace", lambda: torch.logspace(-1, 2, 7), []),
    ("logspace 2", lambda: torch.logspace(0.5, 3, 6, 2.0), []),
    *((f"{name} window {n} {periodic}", lambda name=name, n=n, p=periodic: getattr(torch, f"{name}_window")(n, p), [])
      for name in ("hann", "hamming", "blackman", "bartlett") for n in (1, 2, 7, 8) for periodic in (True, False)),
    ("hamming window of one's own", lambda: torch.hamming_window(9, False, 0.6, 0.4), []),
    *((f"{mode} {align} {size}", lambda a, mode=mode, align=align, size=size: F.interpolate(
        a, size, mode=mode, align_corners=align), [IMAGE])
      for mode in ("bicubic",) for align in (False, True) for size in ((9, 13), (3, 2), (5, 1))),
    ("bicubic scale", lambda a: F.interpolate(a, scale_factor=1.7, mode="bicubic"), [IMAGE]),
    *((f"{mode} smooth {size}", lambda a, mode=mode, size=size: F.interpolate(a, size, mode=mode, antialias=True),
       [real(2, 3, 11, 8)]) for mode in ("bilinear", "bicubic") for size in ((4, 3), (13, 9), (1, 20), (11, 8))),
    ("smooth scale", lambda a: F.interpolate(a, scale_factor=0.4, mode="bilinear", antialias=True),
     [real(2, 3, 11, 8)]),
    ("max_unpool1d", lambda a: F.max_unpool1d(*F.max_pool1d(a, 2, return_indices=True), 2), [real(2, 3, 6)]),
    ("max_unpool2d", lambda a: F.max_unpool2d(*F.max_pool2d(a, 2, return_indices=True), 2), [real(2, 3, 4, 6)]),
    ("max_unpool3d", lambda a: F.max_unpool3d(*F.max_pool3d(a, 2, return_indices=True), 2), [real(2, 3, 4, 6, 2)]),
    ("fractional_max_pool2d", lambda a: F.fractional_max_pool2d(
        a, 2, (3, 4), _random_samples=SAMPLES.to(a.dtype)), [real(2, 3, 7, 9)]),
    ("fractional_max_pool3d", lambda a: F.fractional_max_pool3d(
        a, 2, (3, 4, 2), _random_samples=real(2, 3, 3, low=0.0, high=1.0).to(a.dtype)), [real(2, 3, 7, 9, 5)]),
]  # fmt: skip


def run(function: Callable[..., Any], inputs: list[Any], dtype: torch.dtype) -> list[Tensor]:
    """The results, then the gradients of the sum of (results * fixed numbers)."""
    given = [x.to(dtype).detach().requires_grad_() for x in inputs]
    found = function(*given)
    outs = list(found) if isinstance(found, tuple) else [found]
    outs = [out for out in outs if out.is_floating_point()]
    graded = [out for out in outs if out.requires_grad]
    if graded:
        sum((out * real(*out.shape, seed=5).to(dtype)).sum() for out in graded).backward()  # type: ignore[union-attr]
    return [out.detach() for out in outs] + [x.grad for x in given if x.grad is not None]


def large() -> list[Case]:
    """So large that torch shares the work between threads."""
    image, grid = real(2, 8, 64, 48), real(2, 60, 50, 2, low=-1.3, high=1.3)
    words, starts = whole(20000, high=700), torch.arange(0, 20000, 7)
    some = real(300, 500)
    return [
        ("weight_norm", weight_normed(0), [real(300, 400), real(300, 1)]),
        *((f"embedding_bag {mode}", lambda t, mode=mode: F.embedding_bag(words, t, starts, mode=mode),
           [real(700, 40)]) for mode in ("sum", "mean", "max")),
        *((f"grid_sample {mode}", sampled(mode, "reflection", False), [image, grid])
          for mode in ("bilinear", "nearest", "bicubic")),
        ("grid_sample 3d", sampled("bilinear", "border", True), [real(2, 4, 9, 30, 20), real(2, 6, 40, 30, 3)]),
        *((f"cdist {p}", lambda a, b, p=p: torch.cdist(a, b, p), [real(200, 70), real(190, 70)])
          for p in (2.0, 1.0, float("inf"), 2.5)),
        ("median", lambda a: a.median(1)[0], [some]),
        ("nanmedian", torch.nanmedian, [some]),
        ("kthvalue", lambda a: a.kthvalue(100, 0)[0], [some]),
        ("mode", lambda a: a.detach().round().mode(1)[0], [some]),
        ("histc", lambda a: a.detach().histc(50), [some]),
        ("masked_scatter", lambda a, b: a.masked_scatter(whole(300, 500, high=2).bool(), b), [some, some + 1]),
        ("softshrink", F.softshrink, [some]),
        ("soft_margin", lambda a: F.soft_margin_loss(a, some.sign().to(a.dtype)), [some * 3]),
        ("multi_margin", lambda a: F.multi_margin_loss(a, whole(300, high=500), 2), [some]),
        ("multilabel_margin", lambda a: F.multilabel_margin_loss(a, whole(300, 500, high=40) - 1), [some]),
        ("ctc", lambda a: F.ctc_loss(a.log_softmax(-1), whole(30, 20, high=25) + 1, [60] * 30, [20] * 30),
         [real(60, 30, 26)]),
        ("logcumsumexp", lambda a: a.logcumsumexp(1), [some]),
        ("cross", torch.linalg.cross, [real(30000, 3), real(30000, 3, seed=1)]),
        ("bilinear form", F.bilinear, [real(90, 30), real(90, 40), real(20, 30, 40)]),
        ("sinc", torch.sinc, [some + 0.1]),
        ("bicubic", lambda a: F.interpolate(a, (50, 70), mode="bicubic"), [image]),
        *((f"{mode} smooth", lambda a, mode=mode: F.interpolate(a, (20, 31), mode=mode, antialias=True), [image])
          for mode in ("bilinear", "bicubic")),
        ("max_unpool2d", lambda a: F.max_unpool2d(*F.max_pool2d(a, 2, return_indices=True), 2), [image]),
        ("fractional_max_pool2d", lambda a: F.fractional_max_pool2d(
            a, 2, (30, 40), _random_samples=real(2, 8, 2, low=0.0, high=1.0).to(a.dtype)), [image]),
        ("window", lambda: torch.hann_window(70000), []),
    ]  # fmt: skip


def main(threads: int) -> None:
    import samerun
    from samerun.numerics.verification.conformance import digest_tensor

    torch.set_num_threads(threads)
    for name, function, inputs in CASES + large():
        with samerun.portable():
            found = run(function, inputs, torch.float32)
        print(name, *(digest_tensor(each)[:16] for each in found))


if __name__ == "__main__":
    main(int(sys.argv[1]))

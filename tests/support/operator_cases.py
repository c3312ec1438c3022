"""What users do with the operators of samerun.control.deterministic_kernels, by name of the operator.

Each case is a function of a device and a type that draws its inputs and returns tensors: results, or gradients of a
weighted sum of them. Shapes are odd, crowded, empty, strided; some weights are NaN.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor


@dataclass(frozen=True)
class Inputs:
    """Draws inputs on the CPU, so that they are the same for every device."""

    device: str
    dtype: torch.dtype
    through: torch.dtype | None = None
    """Values are rounded to this type first."""

    def randn(self, *shape: int) -> Tensor:
        return self._typed(torch.randn(shape, dtype=torch.float64))

    def rand(self, *shape: int) -> Tensor:
        return self._typed(torch.rand(shape, dtype=torch.float64))

    def _typed(self, drawn: Tensor) -> Tensor:
        return drawn.to(self.through or self.dtype).to(self.dtype).to(self.device)

    def randint(self, low: int, high: int, *shape: int) -> Tensor:
        return torch.randint(low, high, shape).to(self.device)

    def gradients(self, function: Callable[..., Tensor], *inputs: Tensor, spoilt: bool = False) -> list[Tensor]:
        """The gradients of all inputs; `spoilt`: with a NaN and an infinity among what comes back."""
        leaves = [each.detach().requires_grad_() for each in inputs]
        out = function(*leaves)
        weight = self.randn(*out.shape)
        if spoilt and out.numel() > 1:
            weight.view(-1)[0], weight.view(-1)[-1] = torch.nan, torch.inf
        return list(torch.autograd.grad(out, leaves, weight))


def channels_last(x: Tensor) -> Tensor:
    return x.to(memory_format=torch.channels_last if x.dim() == 4 else torch.channels_last_3d)


Case = Callable[[Inputs], list[Tensor]]
CASES: dict[str, list[Case]] = {}


def case(name: str) -> Callable[[Case], Case]:
    def enter(function: Case) -> Case:
        CASES.setdefault(name, []).append(function)
        return function

    return enter


def gradient(name: str, function: Callable[..., Tensor], *shapes: tuple[int, ...], spoilt: bool = False) -> None:
    """A case: the gradients of `function` of one input of each shape, plain, strided and with channels last."""

    def run(draw: Inputs) -> list[Tensor]:
        out: list[Tensor] = []
        for shape in shapes:
            x = draw.randn(*shape)
            layouts = [x, draw.randn(*shape, 2)[..., 0]] + ([channels_last(x)] if len(shape) in (4, 5) else [])
            out += [each for layout in layouts for each in draw.gradients(function, layout, spoilt=spoilt)]
        return out

    CASES.setdefault(name, []).append(run)


def each_padding(spoilt: bool) -> None:
    for name in ("reflection_pad", "replication_pad"):
        for pad, shape in (
            ((6, 3), (2, 3, 7)), ((0, 2), (3, 7)), ((3, 4, 5, 2), (2, 3, 6, 7)), ((1, 2, 3, 4, 0, 1), (2, 3, 5, 6, 7)),
        ):  # fmt: skip
            layer = getattr(torch.ops.aten, f"{name}{len(pad) // 2}d")  # not F.pad: it writes them otherwise
            gradient(name, lambda x, p=pad, f=layer: f(x, p), shape, spoilt=spoilt)
    replicate = torch.ops.aten.replication_pad2d
    gradient("replication_pad", lambda x: replicate(x, (60, 1, 0, 60)), (1, 1, 2, 2), spoilt=spoilt)
    gradient("replication_pad", lambda x: replicate(x, (-1, 2, 0, 1)), (1, 3, 7), spoilt=spoilt)


for nan in (False, True):
    each_padding(nan)
    five = (2, 3, 7, 8, 9)
    gradient("avg_pool3d", lambda x: F.avg_pool3d(x, 3, 1), five, (1, 4, 4, 4), (0, 2, 4, 4, 4), spoilt=nan)
    gradient("avg_pool3d", lambda x: F.avg_pool3d(x, 3, 2, 1, ceil_mode=True), five, spoilt=nan)
    gradient(
        "avg_pool3d",
        lambda x: F.avg_pool3d(x, (3, 2, 4), (2, 3, 1), (1, 1, 2), ceil_mode=True, count_include_pad=False),
        five, spoilt=nan,
    )  # fmt: skip
    gradient("avg_pool3d", lambda x: F.avg_pool3d(x, 2, divisor_override=5), five, spoilt=nan)
    gradient("adaptive_avg_pool", lambda x: F.adaptive_avg_pool1d(x, 4), (2, 3, 7), spoilt=nan)
    gradient("adaptive_avg_pool", lambda x: F.adaptive_avg_pool2d(x, (9, 5)), (2, 3, 17, 7), (2, 17, 7), spoilt=nan)
    gradient("adaptive_avg_pool", lambda x: F.adaptive_avg_pool2d(x, (3, 40)), (1, 2, 5, 3), (0, 2, 5, 3), spoilt=nan)
    gradient("adaptive_avg_pool", lambda x: F.adaptive_avg_pool3d(x, (3, 2, 5)), five, spoilt=nan)
    gradient("max_pool", lambda x: F.adaptive_max_pool2d(x, (9, 5)), (2, 3, 17, 7), (0, 3, 17, 7), spoilt=nan)
    gradient("max_pool", lambda x: F.adaptive_max_pool3d(x, (3, 2, 5)), five, spoilt=nan)
    gradient("max_pool", lambda x: F.max_pool3d(x, 3, 1, 1), five, spoilt=nan)

# Not spoilt: whether infinity times a weight of 0 counts differs between torch's own kernels.
gradient("interpolate", lambda x: F.interpolate(x, scale_factor=2.3, mode="linear"), (2, 3, 11))
for align in (True, False):
    for factor in (2.3, 0.6, 3):
        for mode in ("bilinear", "bicubic"):
            for smooth in (False, True):

                def image(x: Tensor, f: float = factor, m: str = mode, a: bool = align, s: bool = smooth) -> Tensor:
                    return F.interpolate(x, scale_factor=f, mode=m, align_corners=a, antialias=s)

                gradient("interpolate", image, (2, 2, 11, 6))

    def volume(x: Tensor, a: bool = align) -> Tensor:
        return F.interpolate(x, size=(3, 11, 7), mode="trilinear", align_corners=a)

    def wide(x: Tensor, a: bool = align) -> Tensor:
        return F.interpolate(x, size=(33, 1), mode="bilinear", align_corners=a)

    gradient("interpolate", volume, (2, 3, 5, 6, 7))
    gradient("interpolate", wide, (2, 3, 1, 1), (2, 3, 5, 4))


@case("max_pool")
def fractional(draw: Inputs) -> list[Tensor]:
    flat, deep = draw.rand(2, 3, 2), draw.rand(2, 3, 3)
    return [
        *draw.gradients(
            lambda x: F.fractional_max_pool2d(x, 3, output_size=(8, 9), _random_samples=flat), draw.randn(2, 3, 10, 11)
        ),
        *draw.gradients(
            lambda x: F.fractional_max_pool3d(x, 2, output_size=(5, 6, 7), _random_samples=deep),
            draw.randn(2, 3, 7, 8, 9),
        ),
    ]


@case("max_unpool")
def unpooled(draw: Inputs) -> list[Tensor]:
    """Windows overlap, and what is put back was changed: the last one counts."""
    out = []
    for shape, pool, unpool in (
        ((2, 3, 9), F.max_pool1d, F.max_unpool1d), ((2, 3, 9, 8), F.max_pool2d, F.max_unpool2d),
        ((3, 9, 8), F.max_pool2d, F.max_unpool2d), ((2, 3, 5, 8, 7), F.max_pool3d, F.max_unpool3d),
    ):  # fmt: skip
        x = draw.randn(*shape)
        size = shape[{F.max_pool1d: -1, F.max_pool2d: -2, F.max_pool3d: -3}[pool] :]
        pooled, places = pool(x, 3, 1, return_indices=True)
        out.append(unpool(pooled + draw.rand(*pooled.shape), places, 3, 1, output_size=size))
        if len(shape) == 4:
            out.append(unpool(channels_last(pooled), channels_last(places), 3, 1, output_size=size))
    return out


@case("nll_loss2d")
def losses(draw: Inputs) -> list[Tensor]:
    logits, target, weight = draw.randn(2, 5, 6, 7), draw.randint(0, 5, 2, 6, 7), draw.rand(5)
    out = []
    for reduction in ("mean", "sum"):
        for scale in (None, weight):

            def loss(x: Tensor, w: Tensor | None = scale, r: str = reduction) -> Tensor:
                return F.nll_loss(x, target, weight=w, reduction=r, ignore_index=2)

            out += [loss(logits), *draw.gradients(loss, logits)]
        out.append(F.cross_entropy(channels_last(logits), target, reduction=reduction))
        out.append(F.nll_loss(logits, torch.full_like(target, -100), reduction=reduction))
    return out


@case("ctc_loss")
def sequences(draw: Inputs) -> list[Tensor]:
    out = []
    for lost in (False, True):
        target = draw.randint(1, 6, 4, 8)
        for lengths in (([20, 20, 15, 4], [8, 3, 0, 7]), ([20, 20, 1, 20], [1, 8, 1, 2])):
            long, goal = (torch.tensor(each) for each in lengths)

            def loss(x: Tensor, i: Tensor = long, g: Tensor = goal, z: bool = lost, t: Tensor = target) -> Tensor:
                return F.ctc_loss(x.log_softmax(2), t, i, g, zero_infinity=z)

            out += draw.gradients(loss, draw.randn(20, 4, 6))
    behind = draw.randint(1, 6, 11)
    out += draw.gradients(
        lambda x: F.ctc_loss(x.log_softmax(2), behind, (20, 20, 15), (8, 3, 0), reduction="sum"), draw.randn(20, 3, 6)
    )
    return out


@case("embedding_bag_max")
def bags(draw: Inputs) -> list[Tensor]:
    words, offsets = draw.randint(0, 7, 300), torch.tensor([0, 0, 5, 9, 290]).to(draw.device)
    pairs = draw.randint(0, 50, 400, 5)
    weight = draw.randn(50, 6)
    return [
        *draw.gradients(lambda w: F.embedding_bag(words, w, offsets, mode="max"), weight),
        *draw.gradients(lambda w: F.embedding_bag(words, w, offsets, mode="max", padding_idx=2), weight),
        *draw.gradients(lambda w: F.embedding_bag(pairs, w, mode="max"), weight),
    ]


@case("put")
def puts(draw: Inputs) -> list[Tensor]:
    """Crowded, strided, with negative indices."""
    index, values = draw.randint(-100, 100, 500), draw.randn(500)
    return [
        draw.randn(10, 10).put_(index, values, accumulate=True),
        draw.randn(10, 10).t().put_(index, values, accumulate=True),
        draw.randn(10, 10).put_(index, values),
        draw.randn(10, 10).t().put_(index[:50], values[:50]),
        draw.randn(10, 10).put_(index[:0], values[:0]),
        torch.zeros((), dtype=draw.dtype, device=draw.device).put_(torch.zeros_like(index[:2]), values[:2]),
    ]


@case("histc")
def histograms(draw: Inputs) -> list[Tensor]:
    x = draw.randn(1000)
    holes = torch.where(x > 1, torch.nan, x)
    return [
        torch.histc(x, 64), torch.histc(x, 10, -1, 1), torch.histc(torch.ones_like(x), 5),
        torch.histc(torch.arange(100, dtype=draw.dtype, device=draw.device), 10, 0, 99), torch.histc(holes, 7, -2, 2),
        torch.histc(x[:0], 3),
    ]  # fmt: skip


@case("bincount")
def weighted(draw: Inputs) -> list[Tensor]:
    numbers, weights = draw.randint(0, 5, 1000), draw.randn(1000)
    return [
        torch.bincount(numbers, weights, minlength=8), torch.bincount(numbers, draw.randint(0, 9, 1000)),
        torch.bincount(numbers[:0], weights[:0], minlength=3),
    ]  # fmt: skip


def with_ties(draw: Inputs) -> Iterator[Tensor]:
    x = draw.randn(6, 7, 5)
    yield x
    yield x.round() + 0  # no -0.0: which of two zeros is taken is free
    yield torch.where(x > 1, torch.nan, x)
    yield x.transpose(0, 2)


@case("kthvalue")
def kth(draw: Inputs) -> list[Tensor]:
    found = [(x, x.kthvalue(3, dim=dim, keepdim=True), dim) for x in with_ties(draw) for dim in (0, -1)]
    return [each for x, (values, at), dim in found for each in (values, x.gather(dim, at))]


@case("median")
def medians(draw: Inputs) -> list[Tensor]:
    found = [
        (x, find(x, dim=dim, keepdim=True), dim)
        for x in with_ties(draw) for dim in (0, -1) for find in (torch.median, torch.nanmedian)
    ]  # fmt: skip
    return [each for x, (values, at), dim in found for each in (values, x.gather(dim, at))]


@case("grid_sample")
def sampled(draw: Inputs) -> list[Tensor]:
    out = []
    for padding in ("zeros", "border", "reflection"):
        for align in (True, False):
            for mode, sizes in (
                ("bilinear", (5, 6)), ("nearest", (5, 6)), ("bicubic", (5, 6)), ("bilinear", (3, 4, 5)),
                ("nearest", (3, 4, 5)),
            ):  # fmt: skip

                def sample(x: Tensor, g: Tensor, m: str = mode, p: str = padding, a: bool = align) -> Tensor:
                    return F.grid_sample(x, g, mode=m, padding_mode=p, align_corners=a)

                grid = draw.randn(2, *(each + 4 for each in sizes), len(sizes)) / 2
                out += draw.gradients(sample, draw.randn(2, 3, *sizes), grid)
    x = draw.randn(2, 3, 5, 6)
    there = draw.rand(2, 9, 4, 2)
    out += draw.gradients(lambda g: F.grid_sample(x, g, align_corners=False), there)
    out += draw.gradients(lambda i: F.grid_sample(i, there, align_corners=True), channels_last(x))
    return out


@case("cumsum")
def running(draw: Inputs) -> list[Tensor]:
    x = draw.randn(3, 1000, 4)
    spoilt = torch.where(x > 3.2, torch.inf, x)
    return [
        draw.randn(5000).cumsum(0), x.cumsum(1), x.transpose(0, 1).cumsum(-1), draw.randn(3, 7).cumsum_(0),
        torch.cumsum(draw.randint(0, 9, 3, 17), 1, dtype=draw.dtype), spoilt.cumsum(1), x[:0].cumsum(1),
        torch.cumsum(x, 0, out=torch.empty_like(x)), *draw.gradients(lambda y: y.cumsum(1), x),
        *([torch.complex(x, x.flip(0)).cumsum(1).abs()] if draw.through is None and x.element_size() > 2 else []),
    ]  # fmt: skip


@case("scatter_reduce_prod")
def products(draw: Inputs) -> list[Tensor]:
    out = []
    for dim in (0, -1):
        for own in (True, False):
            index, values = draw.randint(0, 4, 4, 60), draw.rand(5, 66) + 0.5
            start = draw.rand(5, 66)
            out.append(start.scatter_reduce(dim, index, values, "prod", include_self=own))
            out.append(start.t().clone().t().scatter_reduce_(dim, index, values, "prod", include_self=own))
    return out


@case("index_reduce")
def reductions(draw: Inputs) -> list[Tensor]:
    out = []
    for reduce in ("prod", "mean", "amax", "amin"):
        for own in (True, False):
            index = draw.randint(0, 6, 40)
            out.append(draw.randn(5, 6).index_reduce(1, index, draw.rand(5, 40) + 0.5, reduce, include_self=own))
            out.append(draw.randn(6, 5).t().index_reduce_(1, index, draw.randn(5, 40), reduce, include_self=own))
    return out


@case("resize_quantized")
def resized(draw: Inputs) -> list[Tensor]:
    packed = torch.quantize_per_tensor(torch.randn(3, 4), 0.1, 3, torch.qint8)
    same = packed.resize_(7, 5)
    assert same is packed and packed.shape == (7, 5)
    return [packed.int_repr().flatten()[:12].to(draw.dtype)]  # torch leaves the rest as it was in memory

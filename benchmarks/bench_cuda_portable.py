"""What `samerun.portable()` costs on CUDA, beside torch in float32 and in TF32: part of bench_cuda.py.

Operators on the device's clock, forward and (where named) backward; training steps of workloads.py too. All in one
process, in turns; the least of the turns counts. The ratios are portable's time over torch's.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial

import torch
import torch.nn.functional as nnf
from cuda_clock import TURNS, CaseInputs, Way, Work, least, milliseconds
from workloads import make

import samerun

MakeWork = Callable[[CaseInputs], Work]


def graded(function: Callable[..., torch.Tensor], *inputs: torch.Tensor) -> Work:
    """The gradients of all inputs, forward pass included."""
    given = [each.requires_grad_() for each in inputs]
    weight = torch.randn_like(function(*given))
    return lambda: torch.autograd.grad(function(*given), given, weight)


def product(a: tuple[int, ...], b: tuple[int, ...], draw: CaseInputs) -> Work:
    """Of matrices whose first sizes are `draw`'s part of what is said."""
    one, other = draw.randn(draw.part(a[0]), *a[1:]), draw.randn(draw.part(b[0]) if len(b) > 2 else b[0], *b[1:])
    return lambda: one @ other


def of_rows(function: Callable[[torch.Tensor], object], draw: CaseInputs) -> Work:
    x = draw.randn(draw.part(4096), 1000)
    return lambda: function(x)


def graded_rows(function: Callable[..., torch.Tensor], weights: tuple[int, ...], draw: CaseInputs) -> Work:
    return graded(function, draw.randn(draw.part(4096), 1000), *(draw.randn(size) for size in weights))


def linear_gradients(draw: CaseInputs) -> Work:
    return graded(nnf.linear, draw.randn(draw.part(4096), 1024), draw.randn(draw.part(4096), 1024),
                  draw.randn(draw.part(4096)))  # fmt: skip


def conv2d(draw: CaseInputs) -> Work:
    image, weight = draw.randn(draw.part(32), 64, 56, 56), draw.randn(64, 64, 3, 3)
    return lambda: nnf.conv2d(image, weight, padding=1)


def conv2d_gradients(draw: CaseInputs) -> Work:
    image, weight = draw.randn(draw.part(32), 64, 56, 56), draw.randn(64, 64, 3, 3)
    return graded(lambda x, w: nnf.conv2d(x, w, padding=1), image, weight)


def batch_norm_gradients(draw: CaseInputs) -> Work:
    image, weight = draw.randn(draw.part(32), 64, 56, 56), draw.randn(64)
    return graded(lambda x, w: nnf.batch_norm(x, None, None, w, None, True), image, weight)


def embedding_gradients(draw: CaseInputs) -> Work:
    words, table = draw.randint(0, 5000, (draw.part(64), 512)), draw.randn(5000, 256)
    return graded(lambda w: nnf.embedding(words, w), table)


def normal_numbers(draw: CaseInputs) -> Work:
    count = draw.part(4_000_000)
    return lambda: torch.randn(count, device=draw.device)


def training_step(name: str, draw: CaseInputs) -> Work:
    step, count = make(name, draw.device)[1], iter(range(1 << 30))
    return lambda: step(next(count))


CASES: dict[str, MakeWork] = {
    **{f"mm {n}": partial(product, (n, n), (n, n)) for n in (256, 1024, 4096)},
    "mm 64x16384x64": partial(product, (64, 16384), (16384, 64)),
    "bmm 96x128x64": partial(product, (96, 128, 64), (96, 64, 128)),
    "linear gradients": linear_gradients,
    "conv2d": conv2d,
    "conv2d gradients": conv2d_gradients,
    "exp": partial(of_rows, lambda x: x.exp()),
    "gelu": partial(of_rows, nnf.gelu),
    "sum": partial(of_rows, lambda x: x.sum()),
    "sum of columns": partial(of_rows, lambda x: x.sum(0)),
    "softmax": partial(of_rows, lambda x: x.softmax(1)),
    "softmax gradients": partial(graded_rows, lambda x: x.softmax(1), ()),
    "layer_norm": partial(of_rows, lambda x: nnf.layer_norm(x, (1000,))),
    "layer_norm gradients": partial(graded_rows, lambda x, w: nnf.layer_norm(x, (1000,), w), (1000,)),
    "batch_norm gradients": batch_norm_gradients,
    "embedding gradients": embedding_gradients,
    "randn": normal_numbers,
    "cnn step": partial(training_step, "cnn"),
    "gpt step": partial(training_step, "gpt"),
}
"""What is measured. Inputs are made when a case is asked for."""


def in_tf32(work: Work, allowed: bool) -> float:
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = allowed
    return milliseconds(work)


def in_portable(work: Work) -> float:
    with samerun.portable():
        return milliseconds(work)


def main(names: list[str]) -> int:
    if not torch.cuda.is_available():
        print("bench_cuda_portable: there is no CUDA device here.", file=sys.stderr)
        return 2
    ways: tuple[Way, ...] = (
        lambda work: in_tf32(work, False), lambda work: in_tf32(work, True), in_portable,
    )  # fmt: skip
    print(f"torch {torch.__version__}, {torch.cuda.get_device_name()}; milliseconds a call, least of {TURNS}")
    print(f"{'':24} {'float32':>10} {'TF32':>10} {'portable':>10} {'/ float32':>10} {'/ TF32':>10}")
    for name, make_work in CASES.items():
        if names and not any(name.startswith(each) for each in names):
            continue
        torch.manual_seed(0)
        work = make_work(CaseInputs())
        plain, fast, mine = least(work, ways)
        assert plain is not None and fast is not None and mine is not None
        print(f"{name:24} {plain:10.3f} {fast:10.3f} {mine:10.3f} {mine / plain:10.2f} {mine / fast:10.2f}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

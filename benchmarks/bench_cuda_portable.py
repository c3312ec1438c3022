"""What `samerun.portable()` costs on CUDA, beside torch in float32 and in TF32: part of bench_cuda.py.

Operators on the device's clock, forward and (where named) backward; training steps of workloads.py too. All in one
process, in turns; the least of the turns counts. The ratios are portable's time over torch's.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator

import torch
import torch.nn.functional as nnf
from cuda_clock import TURNS, Work, least, milliseconds
from workloads import make

import samerun


def graded(function: Callable[..., torch.Tensor], *inputs: torch.Tensor) -> Work:
    """The gradients of all inputs, forward pass included."""
    given = [each.requires_grad_() for each in inputs]
    weight = torch.randn_like(function(*given))
    return lambda: torch.autograd.grad(function(*given), given, weight)


def product(a: torch.Tensor, b: torch.Tensor) -> Work:
    return lambda: a @ b


def cases() -> Iterator[tuple[str, Work]]:
    """Each makes its inputs only when it is reached."""

    def randn(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, device="cuda")

    for n in (256, 1024, 4096):
        yield f"mm {n}", product(randn(n, n), randn(n, n))
    yield "mm 64x16384x64", product(randn(64, 16384), randn(16384, 64))
    yield "bmm 96x128x64", product(randn(96, 128, 64), randn(96, 64, 128))
    yield "linear gradients", graded(nnf.linear, randn(4096, 1024), randn(4096, 1024), randn(4096))
    image, weight = randn(32, 64, 56, 56), randn(64, 64, 3, 3)
    yield "conv2d", lambda: nnf.conv2d(image, weight, padding=1)
    yield "conv2d gradients", graded(lambda x, w: nnf.conv2d(x, w, padding=1), image.clone(), weight.clone())
    x = randn(4096, 1000)
    yield "exp", lambda: x.exp()
    yield "gelu", lambda: nnf.gelu(x)
    yield "sum", lambda: x.sum()
    yield "sum of columns", lambda: x.sum(0)
    yield "softmax", lambda: x.softmax(1)
    yield "softmax gradients", graded(lambda x: x.softmax(1), x.clone())
    yield "layer_norm", lambda: nnf.layer_norm(x, (1000,))
    yield "layer_norm gradients", graded(lambda x, w: nnf.layer_norm(x, (1000,), w), x.clone(), randn(1000))
    yield (
        "batch_norm gradients",
        graded(lambda x, w: nnf.batch_norm(x, None, None, w, None, True), image.clone(), randn(64)),
    )
    words, table = torch.randint(0, 5000, (64, 512), device="cuda"), randn(5000, 256)
    yield "embedding gradients", graded(lambda w: nnf.embedding(words, w), table)
    yield "randn", lambda: torch.randn(4_000_000, device="cuda")
    for name in ("cnn", "gpt"):
        step, count = make(name, "cuda")[1], iter(range(1 << 30))
        yield f"{name} step", lambda step=step, count=count: step(next(count))


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
    ways: tuple[Callable[[Work], float], ...] = (
        lambda work: in_tf32(work, False), lambda work: in_tf32(work, True), in_portable,
    )  # fmt: skip
    print(f"torch {torch.__version__}, {torch.cuda.get_device_name()}; milliseconds a call, least of {TURNS}")
    print(f"{'':24} {'float32':>10} {'TF32':>10} {'portable':>10} {'/ float32':>10} {'/ TF32':>10}")
    for name, work in cases():
        if names and not any(name.startswith(each) for each in names):
            continue
        plain, fast, mine = least(work, ways)
        assert plain is not None and fast is not None and mine is not None
        print(f"{name:24} {plain:10.3f} {fast:10.3f} {mine:10.3f} {mine / plain:10.2f} {mine / fast:10.2f}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

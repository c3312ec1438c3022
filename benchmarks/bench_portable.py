"""How fast portable kernels are beside plain torch: `python benchmarks/bench_portable.py [THREADS] [NAME...]`.

Both run in one process, in turns, on the same data. With one thread the least CPU time of a call counts, with more
the least wall time. A ratio of 1.0 is torch's speed, 2.0 twice as fast. Measure on an idle machine.

Memory of results is kept when it is freed (glibc), for both alike: whether it goes back to the system after each call
is chance, which changes a result of 12 MB from 0.4 to 6 ms for one of the two.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator

import torch
import torch.nn.functional as nnf
from memory import keep_memory

from samerun.numerics.aten_handlers import losses
from samerun.numerics.aten_handlers.linear_algebra import qr
from samerun.numerics.kernels import (
    distributions,
    elementwise,
    functions,
    library,
    norms,
    random,
    softmax,
    sums,
)

TURNS, SECONDS = 5, 0.25
GOAL = {
    "exp": 0.85,
    "tanh": 1,
    "gelu": 1,
    "sigmoid": 1,
    "log": 1,
    "sum 4M": 1,
    "mean 4096x1000": 1,
    "softmax fwd+bwd": 0.9,
    "layer_norm fwd+bwd": 0.9,
    "cross_entropy fwd+bwd": 0.9,
}

Pair = tuple[str, Callable[[], object], Callable[[], object]]


def cases() -> Iterator[Pair]:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(4_000_000, generator=generator)
    positive, small = x.abs() + 1e-3, (x / 5).clamp(-0.99, 0.99)
    for name in functions.NAMES:
        given = positive if name.startswith("log") or name == "rsqrt" else small if name.startswith("a") else x
        given = given.abs() + 1 if name == "acosh" else given
        if hasattr(torch, name):
            yield (
                name,
                lambda g=given, n=name: functions.apply_correctly_rounded(n, g),
                lambda g=given, n=name: getattr(torch, n)(g),
            )
    yield "gelu", lambda: elementwise.gelu(x), lambda: nnf.gelu(x)
    yield "gelu tanh", lambda: elementwise.gelu(x, "tanh"), lambda: nnf.gelu(x, approximate="tanh")
    yield "silu", lambda: elementwise.silu(x), lambda: nnf.silu(x)
    rows, square, image = x[:4_096_000].view(-1, 1000), torch.randn(2000, 2000), torch.randn(8, 64, 32, 32)
    yield "sum 4M", lambda: sums.sum(x), lambda: x.sum()
    yield "sum 100k", lambda: sums.sum(x[:100_003]), lambda: x[:100_003].sum()
    yield "mean 4096x1000", lambda: sums.mean(rows, 1), lambda: rows.mean(1)
    yield "sum 2000x2000, first", lambda: sums.sum(square, 0), lambda: square.sum(0)
    yield "sum over batch, height, width", lambda: sums.sum(image, (0, 2, 3)), lambda: image.sum((0, 2, 3))
    yield "cumsum", lambda: sums.cumsum(rows, 1), lambda: rows.cumsum(1)
    grad, target = torch.randn(rows.shape), torch.arange(rows.shape[0]) % 1000
    yield (
        "softmax fwd+bwd",
        lambda: softmax.softmax_backward(grad, softmax.softmax(rows, 1), 1),
        lambda: torch._softmax_backward_data(grad, torch.softmax(rows, 1), 1, torch.float32),
    )
    yield "cross_entropy fwd+bwd", lambda: our_cross_entropy(rows, target), lambda: their_cross_entropy(rows, target)
    tokens, w, b = torch.randn(4096, 768), torch.randn(768), torch.randn(768)
    yield "layer_norm fwd+bwd", lambda: our_layer_norm(tokens, w, b), lambda: their_layer_norm(tokens, w, b)
    yield "uniform", lambda: random.uniform([4_000_000], 0, 0), lambda: torch.rand(4_000_000)
    yield "normal", lambda: random.normal([4_000_000], 0, 0), lambda: torch.randn(4_000_000)
    yield "sqrt", lambda: elementwise.sqrt(positive), lambda: torch.sqrt(positive)
    yield from drawn_by_rejection(positive[:100_000])
    square = square[:256, :256].contiguous()
    yield "qr 256x256", lambda: qr(square), lambda: torch.linalg.qr(square)


def drawn_by_rejection(x: torch.Tensor) -> Iterator[Pair]:
    draw, wide, half = distributions.RandomDraw(0, 0), x.double(), torch.full_like(x, 0.5)
    yield "gamma", lambda: distributions.sample_gamma(wide, draw), lambda: torch._standard_gamma(x)
    yield "poisson 4", lambda: distributions.sample_poisson(wide * 4, draw), lambda: torch.poisson(x * 4)
    yield "poisson 100", lambda: distributions.sample_poisson(wide * 100, draw), lambda: torch.poisson(x * 100)
    count = (x * 200).floor()
    yield (
        "binomial",
        lambda: distributions.sample_binomial(count.double(), half.double(), draw),
        lambda: torch.binomial(count, half),
    )
    drawn, few = torch._standard_gamma(x), slice(0, 4096)
    yield (
        "gamma gradient 4096",
        lambda: distributions.gamma_gradient(wide[few], drawn[few].double()),
        lambda: torch._standard_gamma_grad(x[few], drawn[few]),
    )


def our_cross_entropy(x: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    log_p = softmax.log_softmax(x, 1)
    loss, total = losses.nll_loss(log_p, target, None, losses.MEAN, -100)
    grad = losses.nll_loss_backward(torch.ones_like(loss), log_p, target, None, losses.MEAN, -100, total)
    return softmax.log_softmax_backward(grad, log_p, 1)


def their_cross_entropy(x: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    leaf = x.detach().requires_grad_()
    nnf.cross_entropy(leaf, target).backward()
    assert leaf.grad is not None
    return leaf.grad


def our_layer_norm(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    _, mean, r = norms.layer_norm(x, [768], w, b)
    return norms.layer_norm_backward(x, x, [768], mean, r, w)[0]


def their_layer_norm(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    _, mean, r = torch.native_layer_norm(x, [768], w, b, 1e-5)
    return torch.ops.aten.native_layer_norm_backward(x, x, [768], mean, r, w, b, [True, True, True])[0]


def least(function: Callable[[], object], clock: Callable[[], float], best: float) -> float:
    """The least time of a call, for a while."""
    end = time.monotonic() + SECONDS / TURNS
    while True:
        start = clock()
        function()
        best = min(best, clock() - start)
        if time.monotonic() > end:
            return best


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("threads", nargs="?", type=int, default=1)
    parser.add_argument("names", nargs="*", metavar="name", help="only what begins so")
    options = parser.parse_args()
    threads = options.threads
    keep_memory()
    torch.set_num_threads(threads)
    clock = time.process_time if threads == 1 else time.perf_counter
    print(f"torch {torch.__version__}, level {library.current_level()}, {threads} thread(s); ms of a call")
    for name, ours, theirs in cases():
        if options.names and not any(name.startswith(wanted) for wanted in options.names):
            continue
        mine = other = float("inf")
        for _ in range(TURNS):
            mine, other = least(ours, clock, mine), least(theirs, clock, other)
        goal = f"   goal {GOAL[name]}" if name in GOAL else ""
        print(f"{name:30} {mine * 1e3:9.3f}  torch {other * 1e3:9.3f}  ratio {other / mine:5.2f}{goal}")


if __name__ == "__main__":
    main()

"""Time on a CUDA device, by its own clock: ways of doing the same work, in turns. On the CPU, by the system's clock."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

TURNS, CALLS = 7, 10
Work = Callable[[], object]
Way = Callable[[Work], float | None]


@dataclass(frozen=True)
class CaseInputs:
    """Draws the inputs of a case on the CPU, so that they are the same for every device and type.

    `share`: the part of the sizes that a case takes: 1.0 is what costs are measured on.
    """

    device: str = "cuda"
    dtype: torch.dtype = torch.float32
    share: float = 1.0

    def part(self, size: int) -> int:
        return max(1, round(size * self.share))

    def randn(self, *shape: int) -> torch.Tensor:
        return torch.randn(shape, dtype=torch.float64).to(self.dtype).to(self.device)

    def rand(self, *shape: int) -> torch.Tensor:
        return torch.rand(shape, dtype=torch.float64).to(self.dtype).to(self.device)

    def randint(self, low: int, high: int, shape: tuple[int, ...]) -> torch.Tensor:
        return torch.randint(low, high, shape).to(self.device)

    def gradient(self, function: Callable[[torch.Tensor], torch.Tensor], *shape: int) -> Work:
        """The gradient alone: the forward pass is done once, outside."""
        x = self.randn(*shape).requires_grad_()
        out = function(x)
        weight = self.randn(*out.shape)
        return lambda: torch.autograd.grad(out, x, weight, retain_graph=True)


def milliseconds(work: Work) -> float:
    """Of a call, on the device's clock."""
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    start.record()
    for _ in range(CALLS):
        work()
    end.record()
    end.synchronize()
    return start.elapsed_time(end) / CALLS


def milliseconds_on_cpu(work: Work) -> float:
    """Of one call, on the system's clock."""
    start = time.perf_counter()
    work()
    return 1e3 * (time.perf_counter() - start)


def take_turns(work: Work, ways: Sequence[Way], turns: int = TURNS) -> list[list[float | None]]:
    """For each way its times, taken in turns; the first turn warms up. None: this way cannot do it."""
    for way in ways:
        way(work)
    rows = [[way(work) for way in ways] for _ in range(turns)]
    return [list(times) for times in zip(*rows, strict=True)]


def least(work: Work, ways: Sequence[Way]) -> list[float | None]:
    """The least of each way."""
    return [min((time for time in times if time is not None), default=None) for times in take_turns(work, ways)]

"""Part 8: what deterministic and portable operators cost beside torch's own: benchmarks/bench_cuda.py, in full."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import bench_cuda
import bench_cuda_portable
import torch
from cuda_clock import TURNS, CaseInputs, Way, Work, milliseconds, milliseconds_on_cpu, take_turns
from deterministic_stand_in import stand_in

import samerun
from gpu_parts.checks import Check, Facts, PartDevice, SkippedCheck
from samerun.control.deterministic_kernels.table import OPERATORS

LIMIT = 90.0
AIM_DETERMINISTIC = 1.2
AIMS_PORTABLE = {
    **dict.fromkeys(("mm 1024", "mm 4096"), 1 / 0.6),
    **dict.fromkeys(("exp", "gelu", "sum", "sum of columns", "softmax", "layer_norm"), 1 / 0.9),
}
"""Of time: products at 0.6 of the speed of cuBLAS in float32, elementwise and reductions at 0.9 of torch's."""
EMULATED_SHARE, EMULATED_TURNS = 0.001, 1
SLOW_EMULATED = (
    "cnn step",
    "gpt step",
    "mm 4096",
    "conv2d",
    "conv2d gradients",
    "linear gradients",
    "embedding gradients",
)


def make_checks(device: PartDevice) -> Iterator[Check]:
    for name in ("mm 4096", "mm 1024"):
        yield Check(f"portable {name}", partial(measure_portable, name, device), LIMIT)
    for name in bench_cuda.CASES:
        yield Check(f"deterministic {name}", partial(measure_deterministic, name, device), LIMIT)
    for name in bench_cuda_portable.CASES:
        if name not in ("mm 4096", "mm 1024"):
            yield Check(f"portable {name}", partial(measure_portable, name, device), LIMIT)


def make_inputs(device: PartDevice) -> CaseInputs:
    torch.manual_seed(0)
    return CaseInputs("cpu", share=EMULATED_SHARE) if device.is_emulated else CaseInputs()


def measure_deterministic(name: str, device: PartDevice) -> Facts:
    work = bench_cuda.CASES[name](make_inputs(device))
    ours: Way = partial(time_stand_in, find_operator(name)) if device.is_emulated else bench_cuda.ours
    clock = milliseconds_on_cpu if device.is_emulated else milliseconds

    def default(work: Work) -> float | None:
        torch.use_deterministic_algorithms(False)
        return clock(work)

    def theirs(work: Work) -> float | None:
        torch.use_deterministic_algorithms(True)
        try:
            return clock(work)
        except RuntimeError as refused:
            if "does not have a deterministic implementation" not in str(refused):
                raise
            return None
        finally:
            torch.use_deterministic_algorithms(False)

    times = take_turns(work, (default, theirs, ours), EMULATED_TURNS if device.is_emulated else TURNS)
    torch.use_deterministic_algorithms(False)
    return compare_times(
        times[2], {"/ torch's default": times[0], "/ torch's deterministic": times[1]},
        {"/ torch's default": AIM_DETERMINISTIC}, device,
    )  # fmt: skip


def find_operator(case: str) -> str:
    """The table's name for what a case measures."""
    name = case.partition(",")[0]
    for operator in sorted((each.name for each in OPERATORS), key=len, reverse=True):
        if name.replace(" ", "_").startswith(operator):
            return operator
    return name.partition(" ")[0]


def time_stand_in(operator: str, work: Work) -> float:
    (found,) = [each for each in OPERATORS if each.name == operator]
    with stand_in(found):
        return milliseconds_on_cpu(work)


def measure_portable(name: str, device: PartDevice) -> Facts:
    if device.is_emulated and name in SLOW_EMULATED:
        raise SkippedCheck("emulated: it takes minutes")
    work = bench_cuda_portable.CASES[name](make_inputs(device))
    clock = milliseconds_on_cpu if device.is_emulated else milliseconds

    def in_float32(work: Work, tf32: bool) -> float:
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = tf32
        return clock(work)

    def portable(work: Work) -> float:
        with device.kernels_in_force(), samerun.portable():
            return clock(work)

    ways: tuple[Callable[[Work], float], ...] = (
        lambda work: in_float32(work, False), lambda work: in_float32(work, True), portable,
    )  # fmt: skip
    times = take_turns(work, ways, EMULATED_TURNS if device.is_emulated else TURNS)
    aims = {"/ float32": AIMS_PORTABLE[name]} if name in AIMS_PORTABLE else {}
    return compare_times(times[2], {"/ float32": times[0], "/ TF32": times[1]}, aims, device)


def compare_times(
    mine: list[float | None], others: dict[str, list[float | None]], aims: dict[str, float], device: PartDevice
) -> Facts:
    """Ratios turn by turn, and milliseconds. Emulated times mean nothing, so that none are told."""
    assert all(mine), "no time was measured"
    facts: Facts = {"milliseconds": {"samerun": min(time for time in mine if time is not None)}}
    ratios: dict[str, list[float]] = {}
    for label, times in others.items():
        pairs = [(a, b) for a, b in zip(mine, times, strict=True) if a is not None and b]
        if pairs:
            ratios[label] = [round(a / b, 4) for a, b in pairs]
            facts["milliseconds"][label] = min(b for _, b in pairs)
    if device.is_emulated:
        return {"note": "measured, and not told: emulated times mean nothing"}
    return {**facts, "ratios": ratios, "aims": aims}

"""Part 2: what `portable()` computes on the device has the bits of the CPU: vectors, operators, graphs, streams."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any
from unittest import mock

import portable_cases
import portable_operator_cases
import torch
import torch.nn.functional as F
from portable_values import assert_same_bits, values
from torch import Tensor

import samerun
from gpu_parts.checks import Check, Facts, PartDevice, SkippedCheck
from samerun.numerics.kernels import library
from samerun.numerics.verification import conformance

EMULATED_SIZES = (0, 1, 31, 33, 257)
"""Longer ones take minutes on the CPU; `make test-exhaustive` runs them."""
SLOW_REFERENCE = "samerun's C is not built, and the reference in NumPy would take hours"


def make_checks(device: PartDevice) -> Iterator[Check]:
    for n in conformance.SIZES:
        yield Check(f"n={n}", partial(compare_vectors, n, device), 300)
    yield Check("a captured graph replays the bits", partial(replay_graph, device))
    yield Check("a stream of the program is used", partial(use_stream, device))
    yield Check("an operator without a kernel is refused", partial(refuse_operator, device))
    yield Check("large shapes", partial(compare_large_shapes, device), 300)
    yield Check("samerun doctor --numerics", partial(ask_doctor, device), 600)
    for name, function, inputs in portable_operator_cases.ALL_CASES:
        yield Check(f"operator {name}", partial(compare_operator, function, inputs, device))


def compare_vectors(n: int, device: PartDevice) -> Facts:
    if device.is_emulated and n not in EMULATED_SIZES:
        raise SkippedCheck("emulated: it takes minutes, and make test-exhaustive does it")
    rows: list[conformance.ConformanceRow] = []
    with device.kernels_in_force():
        wrong = conformance.find_differing_rows(
            conformance.read_expected_vectors_text(), sizes=(n,), on_row=rows.append, device=device.torch_name
        )
    assert not wrong, f"{len(wrong)} of {len(rows)} rows differ: " + ", ".join(
        f"{row.operator} {row.type}" for row, _ in wrong
    )
    return {"note": f"{len(rows)} rows"}


def compare_operator(function: Callable[..., Any], inputs: list[Any], device: PartDevice) -> None:
    """A case of the tests of the table, values and gradients, on the CPU and on the device."""
    before = torch.get_default_dtype()
    try:
        with samerun.portable():
            wanted = portable_cases.run(function, inputs, torch.float32)
        torch.set_default_dtype(before)
        got = run_case_on_device(function, inputs, device)
    finally:
        torch.set_default_dtype(before)
    assert len(got) == len(wanted)
    for number, (mine, want) in enumerate(zip(got, wanted, strict=True)):
        assert_same_bits(mine.cpu(), want.cpu(), f"result {number}")


def run_case_on_device(function: Callable[..., Any], inputs: list[Any], device: PartDevice) -> list[Tensor]:
    if device.is_emulated:
        with device.kernels_in_force(), samerun.portable():
            return portable_cases.run(function, inputs, torch.float32)
    patches: list[Any] = [
        mock.patch.object(module, maker, moved_to_device(getattr(module, maker)))
        for module in (portable_operator_cases, portable_cases) for maker in ("real", "whole")
    ]  # fmt: skip
    # What a case closes over lies on the CPU: constants of its module, such as labels.
    patches += [
        mock.patch.object(module, name, value.cuda())
        for module in (portable_operator_cases, portable_cases) for name, value in vars(module).items()
        if isinstance(value, Tensor)
    ]  # fmt: skip
    for patch in patches:
        patch.start()
    try:
        with samerun.portable(), torch.device("cuda"):
            return portable_cases.run(function, [each.cuda() for each in inputs], torch.float32)
    finally:
        for patch in patches:
            patch.stop()


def moved_to_device(make: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """`make` calls on the CPU, whatever device is the default, and gives the result to the device."""

    def made(*given: Any, **how: Any) -> Tensor:
        with torch.device("cpu"):
            return make(*given, **how).cuda()

    return made


def make_work(device: PartDevice) -> tuple[Tensor, Callable[[], Tensor]]:
    x, w = values(64, 300).to(device.torch_name), values(128, 300, seed=1).to(device.torch_name)
    return x, lambda: F.softmax(F.gelu(F.linear(x, w)), 1).sum()


def replay_graph(device: PartDevice) -> None:
    require_cuda(device, "CUDA graphs")
    x, work = make_work(device)
    with samerun.portable():
        want = work()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            captured = work()
        x.mul_(0.5)
        again = work()
        graph.replay()
    assert_same_bits(captured.cpu(), again.cpu())
    assert float(captured) != float(want)


def use_stream(device: PartDevice) -> None:
    require_cuda(device, "streams")
    x = values(1000, 1000).cuda()
    stream = torch.cuda.Stream()
    with samerun.portable():
        want = x @ x
        torch.cuda.synchronize()
        with torch.cuda.stream(stream):
            found = x @ x
        stream.synchronize()
    assert_same_bits(found.cpu(), want.cpu())


def refuse_operator(device: PartDevice) -> None:
    with device.kernels_in_force(), samerun.portable():
        try:
            torch.linalg.eigvals(torch.ones(3, 3, device=device.torch_name))
        except samerun.NotPortableError as error:
            assert "eig" in str(error)
            return
    raise AssertionError("torch.linalg.eigvals, which has no portable kernel, was let through")


def compare_large_shapes(device: PartDevice) -> None:
    """More rows than a grid's second dimension may have blocks, and tiles of every size."""
    if not library.is_available():
        raise SkippedCheck(SLOW_REFERENCE)
    rows = 300 if device.is_emulated else 70_000
    cases: list[tuple[str, Callable[[Tensor], Tensor], Tensor]] = [
        ("softmax of many rows", lambda x: F.softmax(x, 1), values(rows, 33)),
        ("layer_norm of many rows", lambda x: F.layer_norm(x, (33,)), values(rows, 33)),
        ("sums of many columns", lambda x: x.sum(0), values(17, rows)),
        ("sum of a long row", lambda x: x.sum(), values(rows * 40)),
        ("product", lambda x: x @ x.t(), values(300 if device.is_emulated else 1100, 513)),
        ("product of many batches", lambda x: torch.bmm(x, x.transpose(1, 2)), values(rows, 3, 5)),
    ]
    for name, function, x in cases:
        with samerun.portable():
            want = function(x)
        with device.kernels_in_force(), samerun.portable():
            got = function(x.to(device.torch_name))
        assert_same_bits(got.cpu(), want, name)


def ask_doctor(device: PartDevice) -> Facts:
    require_cuda(device, "a device that samerun doctor sees")
    if not library.is_available():
        raise SkippedCheck(SLOW_REFERENCE)
    command = [sys.executable, "-m", "samerun", "doctor", "--numerics", "--json", "-", "--quiet"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=580, check=False)
    assert done.returncode == 0, f"exit code {done.returncode}: {done.stderr or done.stdout[-500:]}"
    seen = json.loads(done.stdout)["numerics"]["cuda"]
    rows = len(conformance.read_expected_vectors_text().splitlines())
    for one in seen:
        assert one["rows"] == rows and not one["different"] and not one["trouble"], one
    return {"note": f"{len(seen)} devices"}


def require_cuda(device: PartDevice, what: str) -> None:
    if device.is_emulated:
        raise SkippedCheck(f"emulated: it needs {what}")

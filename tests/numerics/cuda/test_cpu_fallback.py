"""What lies between `portable()` and a device, as far as it can be asked without one."""

from __future__ import annotations

import pytest
import torch

import samerun
from samerun.numerics.aten_handlers import arithmetic
from samerun.numerics.dispatch import cpu_fallback
from samerun.numerics.kernels import library

aten = torch.ops.aten


def test_tensors_of_two_devices_are_refused_before_a_kernel_reads_them() -> None:
    here, there = torch.ones(2, 2), torch.ones(2, 2, device="meta")
    with pytest.raises(RuntimeError, match="same device, but found at least two devices, cpu and meta"):
        cpu_fallback.require_one_device(aten.mm.default, (here, there))
    cpu_fallback.require_one_device(aten.mm.default, (here, here))
    cpu_fallback.require_one_device(aten.add.Tensor, (torch.tensor(1.0), there))  # a number
    cpu_fallback.require_one_device(aten.index.Tensor, (there, [torch.tensor([0, 1])]))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("number", [0.1, 1e-8, 257, torch.tensor(0.1)])
def test_numbers_are_rounded_as_torchs_cpu_kernels_round_them(
    dtype: torch.dtype, number: float | torch.Tensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    x = torch.linspace(-300, 300, 999).to(dtype)
    wanted = [x + number, x - number, number - x]
    monkeypatch.setattr(library, "is_off_cpu", lambda tensor: tensor is x)
    rounded = arithmetic._round_number_to_half_dtype_if_off_cpu(number, x)
    assert isinstance(rounded, float) and rounded == float(torch.tensor(rounded, dtype=dtype))
    for found, want in zip([x.float() + rounded, x.float() - rounded, rounded - x.float()], wanted, strict=True):
        assert torch.equal(found.to(dtype), want)


def test_a_question_about_a_library_is_no_computation() -> None:
    scope = torch.library.Library("samerun_test", "DEF")  # type: ignore[no-untyped-call]
    scope.define("version() -> int")  # type: ignore[no-untyped-call]
    scope.impl("version", lambda: 7, "CompositeExplicitAutograd")  # type: ignore[no-untyped-call]
    with samerun.portable():
        assert torch.ops.samerun_test.version() == 7


@pytest.mark.cuda
def test_what_has_a_kernel_for_the_cpu_alone_has_its_bits() -> None:
    torch.manual_seed(0)
    a, b = torch.randn(5, 5), torch.randn(5, 3)
    with samerun.portable():
        for compute in (
            lambda x, y: torch.linalg.solve(x, y),
            lambda x, y: torch.linalg.matrix_exp(x),
            lambda x, y: torch.view_as_real(torch.fft.fft(y)),
            lambda x, y: torch.nn.functional.layer_norm(x.double(), [5]),
            lambda x, y: x.clone().cholesky_inverse(out=torch.empty_like(x)),
        ):
            found = compute(a.cuda(), b.cuda())  # type: ignore[no-untyped-call]
            assert found.is_cuda and torch.equal(found.cpu(), compute(a, b))  # type: ignore[no-untyped-call]
        with pytest.raises(RuntimeError, match="same device"):
            torch.mm(a.cuda(), b)

"""Every random operator of torch, and all of `torch.nn.init`, in `portable()`: there, right, the same anywhere."""

from __future__ import annotations

import inspect
import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from random_programs import PROGRAMS, digests
from repository_paths import SUPPORT
from torch import Tensor, nn
from torch import distributions as D

import samerun
from samerun.numerics.aten_handlers.table import _raise_no_portable_kernel, resolve_runner_unless_exact

# --- none is missing ---------------------------------------------------------------------------------------------
ATTENTION = "torch's attention takes it on some devices; inside portable() attention is products and softmax instead"
OTHER_DEVICES = "of devices or libraries that the specification leaves out, on CUDA of cuDNN's recurrent networks"
LEFT_OUT = {
    "_cudnn_attention_backward": ATTENTION,
    "_cudnn_attention_forward": ATTENTION,
    "_cudnn_init_dropout_state": OTHER_DEVICES,
    "_cudnn_rnn": OTHER_DEVICES,
    "_efficient_attention_forward": ATTENTION,
    "_fill_mem_eff_dropout_mask_": ATTENTION,
    "_flash_attention_forward": ATTENTION,
    "_flash_attention_forward_no_dropout_inplace": ATTENTION,
    "_fused_dropout": "torch has it for CUDA alone, and calls native_dropout, which is in the table",
    "_fused_sdp_choice": ATTENTION,
    "_lstm_mps": OTHER_DEVICES,
    "_nested_tensor_softmax_with_shape": "of nested tensors, which are not dense",
    "_scaled_dot_product_attention_math_for_mps": OTHER_DEVICES,
    "_scaled_dot_product_cudnn_attention": ATTENTION,
    "_scaled_dot_product_cudnn_attention_backward": ATTENTION,
    "_scaled_dot_product_efficient_attention": ATTENTION,
    "_scaled_dot_product_efficient_attention_backward": ATTENTION,
    "_scaled_dot_product_flash_attention": ATTENTION,
    "_scaled_dot_product_flash_attention_for_cpu": ATTENTION,
    "_scaled_dot_product_fused_attention_overrideable": ATTENTION,
    "_triton_scaled_dot_attention": ATTENTION,
    "miopen_rnn": OTHER_DEVICES,
}


def seeded_operators() -> dict[str, Any]:
    """What torch itself says draws random numbers: every overload."""
    found = {}
    for full in torch._C._dispatch_get_all_op_names():
        space, _, rest = full.partition("::")
        name, _, overload = rest.partition(".")
        if space == "aten":
            operator = getattr(getattr(torch.ops.aten, name), overload or "default", None)
            if operator is not None and torch.Tag.nondeterministic_seeded in operator.tags:
                found[rest] = operator
    return found


def test_every_random_operator_of_torch_is_in_the_table_or_left_out_for_a_reason() -> None:
    operators = seeded_operators()
    assert len(operators) > 100
    refused = {
        name.split(".")[0]
        for name, operator in operators.items()
        if resolve_runner_unless_exact(operator) is _raise_no_portable_kernel
    }
    assert refused == set(LEFT_OUT)
    torchs_own = {name for name, operator in operators.items() if resolve_runner_unless_exact(operator) is None}
    assert not torchs_own, "torch's own kernel would draw the numbers"


def new(*shape: int) -> Tensor:
    return torch.full(shape, float("nan"))


INIT: dict[str, Callable[[Tensor], Tensor]] = {
    **{name: getattr(nn.init, name) for name in (
        "uniform_", "normal_", "ones_", "zeros_", "eye_", "trunc_normal_", "xavier_uniform_", "xavier_normal_",
        "kaiming_uniform_", "kaiming_normal_", "orthogonal_")},
    "constant_": lambda x: nn.init.constant_(x, 0.3),
    "sparse_": lambda x: nn.init.sparse_(x, 0.3),
    "dirac_": lambda x: nn.init.dirac_(x[:, :, None].repeat(1, 1, 3)),
}  # fmt: skip


def test_every_function_of_init_runs_here() -> None:
    public = {name for name, value in vars(nn.init).items() if name.endswith("_") and not name.startswith("_")
              and inspect.isfunction(value)}  # fmt: skip
    assert public == set(INIT)


@pytest.mark.parametrize("name", INIT)
def test_init_fills_and_repeats(name: str) -> None:
    found = []
    for _ in range(2):
        torch.manual_seed(4)
        with samerun.portable():
            found.append(INIT[name](new(9, 7)))
    assert torch.equal(*found) and bool(torch.isfinite(found[0]).all())


def test_init_of_other_settings() -> None:
    with samerun.portable():
        far = nn.init.trunc_normal_(new(50, 40), 0.0, 1.0, 1.5, 3.0)
        assert float(far.min()) >= 1.5 and float(far.max()) <= 3.0 and 1.8 < float(far.mean()) < 2.0
        for shape in ((40, 60), (60, 40), (30, 5, 3), (5, 30, 2)):
            w = nn.init.orthogonal_(new(*shape), gain=3.0).flatten(1)
            short = w @ w.T if w.shape[0] <= w.shape[1] else w.T @ w
            torch.testing.assert_close(short, 9 * torch.eye(len(short)), atol=2e-5, rtol=0)
        mine = nn.init.orthogonal_(new(6, 4), generator=torch.Generator().manual_seed(8))
        assert torch.equal(mine, nn.init.orthogonal_(new(6, 4), generator=torch.Generator().manual_seed(8)))


# --- the right numbers -------------------------------------------------------------------------------------------
def halves(p: float, n: int) -> float:
    """Five deviations of a share."""
    return 5 * (p * (1 - p) / n) ** 0.5


def test_numbers_that_are_functions_of_uniform_ones() -> None:
    n = 40_000
    torch.manual_seed(1)
    with samerun.portable():
        x = torch.empty(n).cauchy_(2.0, 3.0)
        normal = torch.empty(n).log_normal_(0.5, 0.25).log()
        whole = torch.empty(n).geometric_(0.3)
        counts = torch.empty(n, dtype=torch.int64).geometric_(0.3)
    for at, share in ((2.0, 0.5), (5.0, 0.75), (-1.0, 0.25), (2 + 3 * 6.3137515, 0.95)):
        assert abs(float((x <= at).float().mean()) - share) < halves(share, n)
    assert bool(torch.isfinite(x).all())
    assert abs(float(normal.mean()) - 0.5) < 0.01 and abs(float(normal.std()) - 0.25) < 0.01
    for k in (1, 2, 3, 8):
        share = 1 - 0.7**k
        assert abs(float((whole <= k).float().mean()) - share) < halves(share, n)
        assert abs(float((counts <= k).float().mean()) - share) < halves(share, n)
    assert float(whole.min()) == 1.0


def test_dirichlet_numbers() -> None:
    a = torch.tensor([0.5, 2.0, 4.0])
    torch.manual_seed(2)
    with samerun.portable():
        x = torch._sample_dirichlet(a.expand(40_000, 3).contiguous()).double()
    torch.testing.assert_close(x.sum(1), torch.ones(40_000, dtype=torch.float64), atol=3e-7, rtol=0)
    total = float(a.sum())
    mean = a.double() / total
    torch.testing.assert_close(x.mean(0), mean, atol=0.008, rtol=0)
    torch.testing.assert_close(x.var(0), mean * (1 - mean) / (total + 1), atol=0.004, rtol=0)
    with samerun.portable():
        tiny = torch._sample_dirichlet(torch.full((1000, 3), 1e-4))
    assert bool(torch.isfinite(tiny).all()) and float(tiny.max()) < 1 and float(tiny.min()) > 0


TYPES = [torch.float32, torch.float64, torch.bfloat16, torch.float16]
DRAWS: dict[str, Callable[[Tensor], Tensor]] = {
    "poisson": torch.poisson,
    "binomial": lambda x: torch.binomial(x * 20, x / 8),
    "gamma": torch._standard_gamma,
    "dirichlet": torch._sample_dirichlet,
    "cauchy": lambda x: x.clone().cauchy_(),
    "log_normal": lambda x: x.clone().log_normal_(),
    "geometric": lambda x: x.clone().geometric_(0.4),
    "rrelu": lambda x: F.rrelu(-x, training=True),
}


@pytest.mark.parametrize("name", DRAWS)
def test_types_shapes_and_generators(name: str) -> None:
    draw = DRAWS[name]
    with samerun.portable():
        for dtype in TYPES:
            x = (torch.arange(1, 25).reshape(2, 3, 4) / 4).to(dtype)
            found = []
            for given in (x, x.clone(), x.transpose(0, 2).contiguous().transpose(0, 2)):
                torch.manual_seed(3)
                found.append(draw(given))
            assert found[0].dtype is dtype and found[0].shape == x.shape
            assert torch.equal(found[0], found[1]) and torch.equal(found[0], found[2]), "strides do not matter"
            assert draw(x[:0]).shape == (0, 3, 4) and draw(x[0, 0, 0]).shape == ()
    torch.manual_seed(3)
    with samerun.portable():
        once, again = draw(x.float()), draw(x.float())
    assert not torch.equal(once, again), "every draw has numbers of its own"


def test_generators_and_out() -> None:
    def own() -> torch.Generator:
        return torch.Generator().manual_seed(5)

    rate, p = torch.full((30,), 3.0), torch.full((30,), 0.3)
    with samerun.portable():
        for operator, given in ((torch.poisson, (rate,)), (torch.binomial, (rate, p)), (torch._standard_gamma, (rate,)),
                                (torch._sample_dirichlet, (rate,))):  # fmt: skip
            mine = operator(*given, generator=own())
            assert torch.equal(mine, operator(*given, generator=own()))
            packet = getattr(torch.ops.aten, operator.__name__)
            out = torch.empty(0)
            assert packet.out(*given, generator=own(), out=out) is out and torch.equal(out, mine)
        for name, given in (("cauchy", (1.0, 2.0)), ("log_normal", (1.0, 2.0)), ("geometric", (0.3,)),
                            ("uniform", (-1.0, 2.0)), ("exponential", (2.0,)), ("random", ())):  # fmt: skip
            mine = getattr(rate.clone(), name + "_")(*given, generator=own())
            packet = getattr(torch.ops.aten, name)
            assert torch.equal(packet(rate, *given, generator=own()), mine)
            out = torch.empty(0)
            packet.out(rate, *given, generator=own(), out=out)
            assert torch.equal(out, mine)
        normal = rate.clone().normal_(1.0, 2.0, generator=own())
        assert torch.equal(torch.ops.aten.normal_functional(rate, 1.0, 2.0, generator=own()), normal)
        assert torch.equal(torch.normal(1.0, 2.0, (30,), generator=own()), normal)
        assert torch.equal(torch.normal(1.0, 2.0, (30,), generator=own(), out=torch.empty(0)), normal)
        assert torch.equal(torch.ops.aten.normal.out(rate, 1.0, 2.0, generator=own(), out=torch.empty(0)), normal)
        ones = torch.ops.aten.bernoulli.Tensor(torch.empty(30), p, generator=own())
        assert torch.equal(ones, torch.bernoulli(p, generator=own()))
        assert torch.equal(ones, torch.ops.aten.bernoulli.float_out(p, 0.3, generator=own(), out=torch.empty(0)))
        whole = torch.ops.aten.randint_like.Tensor_generator(rate, torch.tensor(9), generator=own())
        assert torch.equal(whole, torch.randint(9, (30,), generator=own()).float())
        noise = torch.empty(30)
        mine = torch.ops.aten.rrelu_with_noise(-rate, noise, 0.1, 0.3, True, own())
        assert torch.equal(mine, -rate * noise) and float(noise.min()) >= 0.1 and float(noise.max()) <= 0.3
        both = torch.ops.aten.rrelu_with_noise_functional(-rate, torch.empty(30), 0.1, 0.3, True, own())
        assert torch.equal(both[0], mine) and torch.equal(both[1], noise)
        x, noise = -rate, torch.empty(30)
        torch.ops.aten.rrelu_with_noise_(x, noise, 0.1, 0.3, True, own())
        assert torch.equal(x, mine)


def test_wrong_arguments_have_torchs_words() -> None:
    x = torch.ones(3)
    wrong: list[tuple[Callable[[], Any], type, str]] = [
        (lambda: torch.poisson(-x), RuntimeError, "invalid Poisson rate, expected rate to be non-negative"),
        (lambda: torch.poisson(x * float("nan")), RuntimeError, "invalid Poisson rate"),
        (lambda: torch.poisson(x.long()), NotImplementedError, "not implemented for"),
        (lambda: torch.binomial(x.long(), x), ValueError, "binomial only supports floating-point dtypes for count"),
        (lambda: torch._standard_gamma(x.long()), NotImplementedError, "not implemented for"),
        (lambda: x.cauchy_(0, -1), RuntimeError, "cauchy_ expects sigma > 0.0, but found sigma=-1"),
        (lambda: x.geometric_(0), RuntimeError, r"geometric_ expects p to be in \(0, 1\), but got p=0"),
        (lambda: x.log_normal_(0, -1), RuntimeError, "log_normal_ expects std > 0.0, but found std=-1"),
        (lambda: x.exponential_(-1), RuntimeError, "exponential_ expects lambda > 0.0, but found lambda=-1"),
        (lambda: x.uniform_(2, 1), RuntimeError, r"uniform_ expects to return a \[from, to\) range"),
        (lambda: torch.normal(x, -x), RuntimeError, "normal expects all elements of std >= 0.0"),
        (lambda: torch.normal(x, -1.0), RuntimeError, "normal expects std >= 0.0, but found std -1"),
        (lambda: x.bernoulli_(1.5), RuntimeError, r"bernoulli_ expects p to be in \[0, 1\], but got p=1.5"),
        (lambda: torch.multinomial(x, 4), RuntimeError, "cannot sample n_sample > prob_dist.size"),
        (lambda: torch.multinomial(x, 0), RuntimeError, "cannot sample n_sample <= 0 samples"),
        (lambda: torch.rrelu(x, 0.5, 0.1, True), RuntimeError, "Lower bound should be less than or equal"),
    ]
    for call, kind, words in wrong:
        with pytest.raises(kind, match=words):
            call()
        with samerun.portable(), pytest.raises(kind, match=words):
            call()
    assert torch.equal(x, torch.ones(3)), "nothing was written"


def test_rrelu_trains() -> None:
    x = torch.linspace(-3, 3, 2001, requires_grad=True)
    with samerun.portable():
        y = nn.RReLU(0.2, 0.4)(x)
        y.sum().backward()
        slopes = (y / x).detach()[:1000]
        still = nn.RReLU(0.2, 0.4).eval()(x)
    assert x.grad is not None
    torch.testing.assert_close(x.grad[:1000], slopes)
    assert 0.2 <= float(slopes.min()) < 0.21 and 0.39 < float(slopes.max()) <= 0.4
    assert abs(float(slopes.mean()) - 0.3) < 0.01
    assert bool((x.grad[1001:] == 1).all())
    torch.testing.assert_close(still, F.leaky_relu(x, 0.3))


@pytest.mark.exhaustive
def test_samples_of_distributions_and_how_they_move() -> None:
    a = torch.linspace(0.3, 6, 50)
    n = 20_000
    torch.manual_seed(6)
    with samerun.portable():
        moments = {
            "Gamma": (D.Gamma(a, 2.0).sample((n,)), a / 2, (a / 4)),
            "Beta": (D.Beta(a, 3.0).sample((n,)), a / (a + 3), a * 3 / ((a + 3) ** 2 * (a + 4))),
            "Poisson": (D.Poisson(a * 4).sample((n,)), a * 4, a * 4),
            "Binomial": (D.Binomial(30, a / 7).sample((n,)), 30 * a / 7, 30 * a / 7 * (1 - a / 7)),
            "StudentT": (D.StudentT(a + 5).sample((n,)), a * 0, (a + 5) / (a + 3)),
            "Chi2": (D.Chi2(a + 1).sample((n,)), a + 1, 2 * (a + 1)),
        }
    for name, (x, mean, variance) in moments.items():
        error = (x.mean(0) - mean).abs() / (variance / n).sqrt()
        assert float(error.max()) < 5, name
        torch.testing.assert_close(x.var(0), variance, rtol=0.25, atol=0, msg=name)
    shape = a.clone().requires_grad_()
    with samerun.portable():
        D.Gamma(shape, 2.0).rsample((4000,)).mean(0).sum().backward()
    assert shape.grad is not None
    torch.testing.assert_close(shape.grad, torch.full((50,), 0.5), rtol=0.1, atol=0)  # the mean is a / 2
    one = a.clone().requires_grad_()
    with samerun.portable():
        D.Beta(one, torch.full((50,), 3.0)).rsample((4000,)).mean(0).sum().backward()
    assert one.grad is not None
    torch.testing.assert_close(one.grad, 3 / (a + 3) ** 2, rtol=0.1, atol=0.002)


# --- the same anywhere -------------------------------------------------------------------------------------------
def printed(threads: int, **variables: str) -> dict[str, str]:
    done = subprocess.run(
        [sys.executable, str(SUPPORT / "random_programs.py"), str(threads)], env={**os.environ, **variables},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    return dict(line.rsplit(" ", 1) for line in done.stdout.splitlines())


@pytest.mark.slow
def test_fresh_processes_of_other_threads_and_instructions_draw_the_same() -> None:
    want = digests()
    assert len(set(want.values())) == len(PROGRAMS)
    found = printed(2, ATEN_CPU_CAPABILITY="default", MKL_CBWR="COMPATIBLE", SAMERUN_NUMERICS_LEVEL="")
    assert {name for name in want if want[name] != found[name]} == set()

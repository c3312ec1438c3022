"""The table of operators: each gives what torch gives in float64, forward and backward, within float32's accuracy.

(What the bits are is the business of the reference; here it is whether the right thing is computed at all.)
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from typing import Any

import portable_operators
import pytest
import torch
import torch.nn.functional as F
from portable_cases import real, run
from portable_operator_cases import CASES, OPTIMIZERS, X, Y
from portable_values import assert_same_bits
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

import samerun
from samerun.numerics.aten_handlers import random, recurrent
from samerun.numerics.aten_handlers.declare import split_names
from samerun.numerics.aten_handlers.table import COMPOSED, MEMBERS

SEEN: set[str] = set()


class Listening(TorchDispatchMode):
    """Lies over the portable mode and notes which operators pass."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func._schema.name
        SEEN.update({name, f"{name}.{func._schema.overload_name or 'default'}", name.rstrip("_")})
        return func(*args, **(kwargs or {}))


@pytest.mark.filterwarnings("ignore:The reduce argument of torch.scatter")
@pytest.mark.parametrize(("name", "function", "inputs"), CASES, ids=[case[0] for case in CASES])
def test_the_right_thing_is_computed(name: str, function: Callable[..., Any], inputs: list[Any]) -> None:
    with samerun.portable(), Listening():
        ours = run(function, inputs, torch.float32)
    before = torch.get_default_dtype()
    theirs = run(function, inputs, torch.float64)
    torch.set_default_dtype(before)
    assert len(ours) == len(theirs)
    for mine, exact in zip(ours, theirs, strict=True):
        assert mine.shape == exact.shape
        assert mine.dtype is torch.float32
        torch.testing.assert_close(mine.double(), exact.double(), rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_storage_types_are_widened_and_rounded_once(dtype: torch.dtype) -> None:
    x, y, w = X.to(dtype), Y.to(dtype), real(5, 7).to(dtype)
    for function, inputs in (
        (lambda a, b: torch.add(a, b, alpha=0.3), (x, y)),
        (lambda a: F.gelu(a), (x,)),
        (lambda a: a.softmax(1), (x,)),
        (lambda a, b: F.linear(a, b), (x, w)),
        (lambda a: a.exp(), (x,)),
        (lambda a: F.layer_norm(a, (7,)), (x,)),
        (lambda a: a.mean(1), (x,)),
    ):
        with samerun.portable():
            narrow = function(*inputs)
            wide = function(*(each.float() for each in inputs))
        assert narrow.dtype is dtype
        assert torch.equal(narrow, wide.to(dtype))


def test_recurrent_networks() -> None:
    for make in (
        lambda: torch.nn.LSTM(5, 6, 2, bidirectional=True),
        lambda: torch.nn.LSTM(5, 6, 2, batch_first=True, bias=False),
        lambda: torch.nn.LSTM(5, 6, proj_size=3),
        lambda: torch.nn.GRU(5, 6, 2, bidirectional=True),
        lambda: torch.nn.RNN(5, 6, nonlinearity="relu"),
    ):
        torch.manual_seed(0)
        net, x = make(), real(4, 3, 5)
        with samerun.portable(), Listening():
            ours = net(x.float())[0]
            ours.square().sum().backward()
        grads = [p.grad for p in net.parameters()]
        net.zero_grad()
        net.double()
        theirs = net(x)[0]
        theirs.square().sum().backward()
        torch.testing.assert_close(ours.double(), theirs, rtol=1e-5, atol=1e-5)
        for mine, p in zip(grads, net.parameters(), strict=True):
            assert mine is not None
            torch.testing.assert_close(mine.double(), p.grad, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("kind", ["lstm", "gru", "rnn_tanh", "rnn_relu"])
@pytest.mark.parametrize("bias", [True, False])
def test_recurrent_networks_have_the_bits_of_torchs_own_steps(
    kind: str, bias: bool, request: pytest.FixtureRequest
) -> None:
    """Where torch fuses nothing it takes the steps itself, in operators of the table."""
    torch.manual_seed(0)
    settings = {"num_layers": 2, "bidirectional": True, "bias": bias}
    net: torch.nn.RNNBase
    if kind.startswith("rnn"):
        net = torch.nn.RNN(5, 6, nonlinearity=kind.removeprefix("rnn_"), **settings)
    else:
        net = (torch.nn.LSTM if kind == "lstm" else torch.nn.GRU)(5, 6, **settings)
    x, first = real(4, 3, 5).float(), (real(4, 3, 6).float(), real(4, 3, 6).float())
    state = first if kind == "lstm" else first[0]
    packed = torch.nn.utils.rnn.pack_padded_sequence(x, [4, 3, 1])
    rest = (net._flat_weights, bias, 2, 0.0, True, True)
    operators = getattr(torch.ops.aten, kind)
    both = ((operators.input, (x, state, *rest, False)),
            (operators.data, (packed.data, packed.batch_sizes, state, *rest)))  # fmt: skip
    request.addfinalizer(lambda: torch.backends.mkldnn.set_flags(_enabled=True))
    for operator, given in both:
        of_torch = partial(operator._op_dk, torch._C.DispatchKey.CompositeImplicitAutograd)
        found = []
        for call in (operator, of_torch):
            net.zero_grad()
            torch.backends.mkldnn.set_flags(_enabled=False)
            with samerun.portable(), Listening():
                results = call(*given)
                results[0].square().sum().backward()
            found.append([each.detach() for each in results] + [p.grad for p in net.parameters()])
        for mine, theirs in zip(*found, strict=True):
            assert torch.equal(mine, theirs)


@pytest.mark.parametrize("kind", ["LSTM", "GRU", "RNN", "RNN of relu"])
@pytest.mark.parametrize("bias", [True, False])
def test_cells_take_one_step_of_their_networks(kind: str, bias: bool) -> None:
    """Also in inference mode, where the mode sees networks and cells whole."""
    torch.manual_seed(0)
    settings: dict[str, Any] = {"bias": bias}
    if kind == "RNN of relu":
        kind, settings["nonlinearity"] = "RNN", "relu"
    net, cell = getattr(torch.nn, kind)(5, 6, **settings), getattr(torch.nn, kind + "Cell")(5, 6, **settings)
    cell.load_state_dict({name.removesuffix("_l0"): value for name, value in net.state_dict().items()})
    x = real(4, 3, 5).float()

    def states(found: Any) -> list[Tensor]:
        return list(found) if kind == "LSTM" else [found]

    for quick in (False, True):
        with samerun.portable(), Listening(), torch.inference_mode(quick):
            outputs, last = net(x)
            state = None
            for step in x:
                state = cell(step, state)
            of_packed, _ = net(torch.nn.utils.rnn.pack_padded_sequence(x, [4, 4, 4]))
        assert torch.equal(of_packed.data.reshape(outputs.shape), outputs)
        for mine, whole_net in zip(states(state), states(last), strict=True):
            assert torch.equal(mine, whole_net[0])
        if not quick:
            torch.stack(states(state)).square().sum().backward()
            assert all(p.grad is not None and p.grad.isfinite().all() for p in cell.parameters())


def test_cells_refuse_states_with_torchs_words() -> None:
    for x, h in (((3, 5), (1, 6)), ((3, 5), (3, 7))):
        said = []
        for context in (samerun.portable(), nullcontext()):
            with context, pytest.raises(RuntimeError) as caught:
                torch.nn.GRUCell(5, 6)(torch.zeros(x), torch.zeros(h))
            said.append(str(caught.value))
        assert said[0] == said[1]


def test_transformers_without_gradients_take_the_same_steps() -> None:
    torch.manual_seed(0)
    layers = [
        torch.nn.TransformerEncoderLayer(8, 2, 16, 0.0, batch_first=True, norm_first=first, activation=activation)
        for first in (False, True)
        for activation in ("relu", "gelu")
    ]
    x = real(2, 5, 8).float()
    for layer in layers:
        layer.eval()
        with samerun.portable(), Listening(), torch.no_grad():
            fast = layer(x)
        layer.train()
        slow = layer.double()(x.double())
        torch.testing.assert_close(fast.double(), slow, rtol=1e-5, atol=1e-5)
        layer.float()
    encoder = torch.nn.TransformerEncoder(layers[0], 2).eval()
    padding = torch.tensor([[False] * 5, [False] * 3 + [True] * 2])
    with samerun.portable(), Listening(), torch.no_grad():
        padded = encoder(x, src_key_padding_mask=padding)
        alone = encoder(x[1:, :3])
    assert torch.equal(padded[1, :3], alone[0]), "padding does not leak"
    attention = torch.nn.MultiheadAttention(8, 2, batch_first=True).eval()
    with samerun.portable(), Listening(), torch.no_grad():
        found, weights = attention(x, x, x)
    exact, exact_weights = attention.double()(x.double(), x.double(), x.double())
    torch.testing.assert_close(found.double(), exact, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(weights.double(), exact_weights, rtol=1e-5, atol=1e-5)
    with samerun.portable(), Listening(), torch.inference_mode():
        F.scaled_dot_product_attention(x, x, x)
        torch.nn.LSTM(8, 4)(x)
        torch.nn.LSTM(8, 4)(torch.nn.utils.rnn.pack_padded_sequence(x, [2, 2, 1, 1, 1]))
        F.rms_norm(x, (8,))
        exact = F.linear(x, x[0])
    assert torch.allclose(exact, x @ x[0].t(), atol=1e-5)


@pytest.mark.parametrize("setting", [{}, {"foreach": True}, {"fused": True}], ids=str)
@pytest.mark.parametrize("make", OPTIMIZERS)
def test_optimizers(make: Callable[..., torch.optim.Optimizer], setting: dict[str, bool]) -> None:
    def train(dtype: torch.dtype, **options: bool) -> Tensor:
        p = torch.nn.Parameter(X.to(dtype))
        optimizer = make([p], **options)
        for i in range(5):
            optimizer.zero_grad()
            ((p - Y.to(dtype)) ** 2 * (1 + i)).sum().backward()
            torch.nn.utils.clip_grad_norm_([p], 5.0)
            optimizer.step()
        return p.detach()

    with samerun.portable(), Listening():
        ours = train(torch.float32, **setting)
    torch.testing.assert_close(ours.double(), train(torch.float64), rtol=1e-4, atol=1e-4)


def test_random_members_run() -> None:
    with samerun.portable(), Listening():
        torch.manual_seed(0)
        p = torch.full((4, 5), 0.3)
        generator = torch.Generator().manual_seed(1)
        torch.rand(3), torch.rand(3, generator=generator), torch.randn(3), torch.randn(3, generator=generator)
        torch.rand_like(p), torch.randn_like(p), torch.randint(5, (3,)), torch.randint(2, 5, (3,))
        torch.randint(5, (3,), generator=generator), torch.randint(2, 5, (3,), generator=generator)
        torch.randint_like(p, 5), torch.randint_like(p, 2, 5), torch.randperm(7), torch.bernoulli(p)
        torch.ops.aten.bernoulli.p(p, 0.5), p.clone().bernoulli_(), p.clone().uniform_(-1, 1), p.clone().normal_(1, 2)
        torch.normal(p, 2.0), p.clone().random_(3), p.clone().exponential_(), torch.multinomial(p, 3)
        torch.multinomial(p, 9, replacement=True)
        torch.poisson(p), torch.binomial(p, p), p.clone().cauchy_(), p.clone().log_normal_(), p.clone().geometric_(0.2)
        for distribution in (torch.distributions.Gamma(p.clone().requires_grad_(), p),
                             torch.distributions.Dirichlet(p.clone().requires_grad_())):  # fmt: skip
            distribution.rsample().sum().backward()
        F.rrelu(p.clone().requires_grad_(), training=True).sum().backward()
        torch.ops.aten.normal_functional(p), torch.ops.aten.cauchy(p)
        torch.ops.aten.log_normal(p), torch.ops.aten.geometric(p, 0.2)
        torch.ops.aten.rrelu_with_noise_functional(p, p.clone()), F.rrelu(p.clone(), training=True, inplace=True)
        F.dropout(p.requires_grad_(), 0.4).sum().backward()
        mask = torch.native_dropout(p, 0.4, True)[1]
        torch.ops.aten.native_dropout_backward(p.detach(), mask, 2.0)


def signs(x: Tensor) -> list[float]:
    return [float(torch.copysign(torch.ones(()), value)) if value == 0 else float(value) for value in x.reshape(-1)]


def test_the_sign_of_a_zero_is_specified() -> None:
    """torch's own depends on threads and instructions."""
    a, b = torch.tensor([0.0, 0.0, -0.0, -0.0, -1.0, 0.0]), torch.tensor([0.0, -0.0, 0.0, -0.0, 0.0, -2.0])
    with samerun.portable(), Listening():
        assert signs(torch.maximum(a, b)) == [1, 1, 1, -1, 1, 1]
        assert signs(torch.minimum(a, b)) == [1, -1, -1, -1, -1, -2]
        assert signs(torch.fmax(a, torch.full((6,), float("nan")))) == signs(a)
        assert signs(torch.fmin(a, b)) == signs(torch.minimum(a, b))
        assert signs(torch.relu(a)) == signs(a.clamp(min=0)) == signs(F.relu6(a)) == [1] * 6
        assert signs(torch.clamp_max(a, -0.0)) == [-1, -1, -1, -1, -1, -1]
        assert signs(torch.stack([a[:2], a[2:4]], 1).amax(1)) == [1, 1]
        assert signs(a[3:4].amax()) == signs(a[2:4].amin()) == signs(a[:4].min()) == [-1]
        assert signs(a.max()) == [1]
        assert [signs(each) for each in torch.aminmax(a[:4])] == [[-1], [1]]
        assert torch.isnan(torch.relu(torch.tensor(float("nan"))))
        assert torch.equal(torch.clamp(a, torch.tensor(-0.5), torch.tensor(0.5)), a.clamp(-0.5, 0.5))
        with pytest.raises(RuntimeError, match="must not be None"):
            torch.ops.aten.clamp.default(a)


def test_empty_and_scalar_tensors() -> None:
    for shape in ((0,), (0, 4), (4, 0), ()):
        x = torch.zeros(shape)
        with samerun.portable():
            for function in (torch.exp, torch.sum, torch.relu, F.gelu, torch.neg):
                assert function(x).shape == function(torch.zeros(shape, dtype=torch.float64).float()).shape
            for dim in range(x.dim()):
                assert x.softmax(dim).shape == x.shape and x.sum(dim).shape == x.double().sum(dim).shape
    with samerun.portable():
        assert torch.mm(torch.zeros(3, 0), torch.zeros(0, 2)).tolist() == [[0.0, 0.0]] * 3
        assert F.linear(torch.zeros(0, 3), torch.zeros(2, 3), torch.zeros(2)).shape == (0, 2)
        assert float(torch.dot(torch.zeros(0), torch.zeros(0))) == 0
        with pytest.raises(RuntimeError):
            torch.zeros(0).max()


def test_what_cudnn_would_compute_is_the_same() -> None:
    """torch asks cuDNN for it on CUDA devices; the CPU has no such operators."""
    aten, x, grid = torch.ops.aten, real(2, 3, 4, 5).float(), real(2, 4, 7, 2).float()
    with samerun.portable(), Listening():
        assert_same_bits(aten.cudnn_grid_sampler(x, grid), aten.grid_sampler_2d(x, grid, 0, 0, True))
        g = real(2, 3, *grid.shape[1:3]).float()
        both = zip(aten.cudnn_grid_sampler_backward(x, grid, g),
                   aten.grid_sampler_2d_backward(g, x, grid, 0, 0, True, [True, True]), strict=True)  # fmt: skip
        for mine, want in both:
            assert_same_bits(mine, want)
        assert_same_bits(aten._grid_sampler_2d_cpu_fallback(x, grid, 1, 2, False),
                         aten.grid_sampler_2d(x, grid, 1, 2, False))  # fmt: skip
        assert torch.allclose(x, x)
        assert aten._use_cudnn_ctc_loss(real(3, 1, 4), torch.ones(1, 1).int(), [3], [1], 0) is False


FROM_TORCHS_SAMPLES = split_names("""
    lgamma digamma polygamma special.zeta mvlgamma erfinv special.ndtri special.erfcx special.log_ndtr
    special.entr special.xlog1py logaddexp2 igamma igammac i0 special.i0e special.i1 special.i1e
    special.modified_bessel_i0 special.modified_bessel_i1 special.modified_bessel_k0 special.modified_bessel_k1
    special.bessel_j0 special.scaled_modified_bessel_k0 special.scaled_modified_bessel_k1 special.bessel_j1
    special.spherical_bessel_j0 special.chebyshev_polynomial_t special.chebyshev_polynomial_u
    special.chebyshev_polynomial_v special.chebyshev_polynomial_w special.shifted_chebyshev_polynomial_t
    special.shifted_chebyshev_polynomial_u special.shifted_chebyshev_polynomial_v
    special.shifted_chebyshev_polynomial_w special.hermite_polynomial_h special.hermite_polynomial_he
    special.laguerre_polynomial_l special.legendre_polynomial_p angle rad2deg linalg.lu_factor_ex lu_unpack
    linalg.lu linalg.lu_solve linalg.solve_ex linalg.inv_ex linalg.det linalg.slogdet linalg.cholesky_ex
    cholesky cholesky_solve cholesky_inverse linalg.eigh linalg.svd linalg.pinv linalg.lstsq matrix_exp ormqr
    triangular_solve diagonal sgn put _unsafe_masked_index_put_accumulate renorm std_mean dist ldexp
    index_reduce histogram _segment_reduce nn.functional.interpolate nn.functional.adaptive_max_pool3d polar
    fft.rfft _batch_norm_with_update take _unsafe_masked_index linalg.solve nn.functional.batch_norm
""")


@pytest.mark.filterwarnings("ignore")
def test_operators_of_which_torch_has_samples() -> None:
    wrong = []
    for operator in portable_operators.select_operators(FROM_TORCHS_SAMPLES, torch.float32):
        for sample in portable_operators.iterate_samples(operator, torch.float32, 2):
            verdict = portable_operators.judge_sample(operator, sample, torch.float32, Listening)
            if verdict.kind != "right":
                wrong.append((portable_operators.full_name(operator), verdict))
    assert not wrong


def test_gradients_of_exact_nearest_interpolation() -> None:
    for shape in ((1, 2, 4), (1, 2, 4, 3), (1, 2, 4, 3, 3)):
        x = real(*shape)
        gradients = []
        for given, context in ((x.float(), samerun.portable()), (x, nullcontext())):
            given.requires_grad_()
            with context, Listening() if given.dtype is torch.float32 else nullcontext():
                F.interpolate(given, scale_factor=1.5, mode="nearest-exact").square().sum().backward()
            assert given.grad is not None
            gradients.append(given.grad.double())
        torch.testing.assert_close(*gradients, rtol=1e-5, atol=1e-5)


def test_groups_of_a_mixture_of_experts() -> None:
    x, experts = real(10, 8).float(), real(3, 8, 4).float()
    ends = torch.tensor([2, 2, 7], dtype=torch.int32)
    with samerun.portable(), Listening():
        found = torch.ops.aten._grouped_mm(x, experts, ends)
        pieces = [x[:2] @ experts[0], x[2:2] @ experts[1], x[2:7] @ experts[2]]
        of_k = torch.ops.aten._grouped_mm(x.t(), x, torch.tensor([4, 10], dtype=torch.int32))
    assert torch.equal(found[:7], torch.cat(pieces)) and not bool(found[7:].any())
    torch.testing.assert_close(of_k, torch.stack([x[:4].t() @ x[:4], x[4:].t() @ x[4:]]))


def test_products_of_int8_do_not_saturate() -> None:
    large, small = torch.full((17, 64), 127, dtype=torch.int8), torch.full((64, 5), -128, dtype=torch.int8)
    with samerun.portable(), Listening():
        assert torch._int_mm(large, small).eq(127 * -128 * 64).all()
        with pytest.raises(RuntimeError, match="int8 but got int"):
            torch._int_mm(large, small.int())


RAN: set[str] = set()


@pytest.fixture(autouse=True)
def _ran(request: pytest.FixtureRequest) -> None:
    RAN.add(request.node.nodeid)


def test_every_member_of_the_table_has_run_above(request: pytest.FixtureRequest) -> None:
    mine = [item.nodeid for item in request.session.items if item.path == request.node.path]
    above = mine[: mine.index(request.node.nodeid)]
    chosen = request.config.getoption("keyword") or any("::" in each for each in request.config.args)
    if chosen or not RAN.issuperset(above):
        pytest.skip("tests above were left out, or another worker ran them: `make test` runs this file by itself too")
    missing = {name for name in {**MEMBERS, **COMPOSED} if name not in SEEN and name.rstrip("_") not in SEEN}
    missing -= {name for name in random.MEMBERS if name.split(".")[0] in SEEN}
    missing -= set(recurrent.QUANTIZED)  # test_portable_quantized.py
    assert not missing


@pytest.mark.parametrize("n", [0, 7, 1 << 15, 100_003])
def test_steps_in_place_have_the_bits_of_those_that_are_not(n: int) -> None:
    """Also of one tensor with itself, with strides, and overlapping."""
    a, b, c = (real(max(n, 1), seed=seed)[:n].float() for seed in (1, 2, 3))
    b = b.abs() + 0.1
    with samerun.portable():
        for name, given in (("addcmul", (b, c)), ("addcdiv", (c, b))):
            in_place, other = getattr(a.clone(), name + "_"), getattr(torch, name)
            assert torch.equal(in_place(*given, value=-0.3), other(a, *given, value=-0.3))
            mine, copy = b.clone(), b.clone()
            assert torch.equal(getattr(mine, name + "_")(mine, mine, value=0.7), other(b, copy, copy, value=0.7))
        assert torch.equal(a.clone().lerp_(b, 0.1), torch.lerp(a, b, 0.1))
        spread = a.repeat_interleave(2)
        spread[::2].lerp_(b, 0.1)
        assert torch.equal(spread[::2], torch.lerp(a, b, 0.1)) and torch.equal(spread[1::2], a)
        behind = a.clone()
        behind[1:].lerp_(behind[:-1], 0.5)
        assert torch.equal(behind[1:], torch.lerp(a[1:], a[:-1], 0.5))

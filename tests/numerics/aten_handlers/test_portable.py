"""`samerun.portable()`: what is inside, what is refused, and the same bits under every setting of the machine."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import threading
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from portable_models import NAMES, make
from repository_paths import SUPPORT
from torch.utils._python_dispatch import TorchDispatchMode

import samerun
from samerun.numerics.aten_handlers.table import (
    _raise_no_portable_kernel,
    portable_operator_names,
    resolve_runner_unless_exact,
)
from samerun.numerics.dispatch.portable import is_inside_portable
from samerun.numerics.dispatch.refusals import GENERAL_ADVICE, find_similar_portable_operators
from samerun.numerics.kernels import library


class Collecting(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.operators: set[Any] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.operators.add(func)
        return func(*args, **(kwargs or {}))


# --- in force or not ------------------------------------------------------------------------------------------
def test_it_is_in_force_inside_and_only_there() -> None:
    assert not is_inside_portable()
    with samerun.portable():
        assert is_inside_portable()
        with samerun.portable():
            assert is_inside_portable()
        assert is_inside_portable()
    assert not is_inside_portable()


def test_an_exception_leaves_nothing_behind() -> None:
    one = samerun.portable()
    for _ in range(2):
        with pytest.raises(KeyError), one, one:
            raise KeyError
        assert not is_inside_portable()


def test_decorator() -> None:
    @samerun.portable()
    def inside(depth: int) -> list[bool]:
        return [is_inside_portable()] + (inside(depth - 1) if depth else [])

    assert inside(3) == [True] * 4 and not is_inside_portable()


def test_what_runs_after_the_call_is_refused_as_decorated() -> None:
    def batches() -> Any:
        yield 1

    with pytest.raises(samerun.SamerunError, match=r"@portable\(\): .*batches is a generator") as caught:
        samerun.portable()(batches)
    assert "Write `with samerun.portable():` inside it." in str(caught.value)


def test_a_wrong_setting_is_named() -> None:
    with pytest.raises(samerun.SamerunError, match=r"portable\(unsupported='ignore'\): it is one of 'error', 'warn'"):
        samerun.portable(unsupported="ignore")


def test_threads_are_in_it_on_their_own() -> None:
    found: dict[str, Any] = {}
    x = torch.linspace(-3, 3, 1000)

    def other() -> None:
        found["before"] = is_inside_portable()
        with samerun.portable():
            found["inside"] = is_inside_portable()
            found["value"] = F.gelu(x).sum()
        found["after"] = is_inside_portable()

    with samerun.portable():
        thread = threading.Thread(target=other)
        thread.start()
        mine = F.gelu(x).sum()
        thread.join()
        assert is_inside_portable()
    assert found["before"] is False and found["inside"] is True and found["after"] is False
    assert torch.equal(found["value"], mine)


def test_many_threads_at_once_compute_the_same() -> None:
    x, w = torch.linspace(-1, 1, 40 * 300).view(40, 300), torch.linspace(-2, 1, 300 * 50).view(300, 50)
    found: list[torch.Tensor] = []

    def work() -> None:
        with samerun.portable():
            for _ in range(5):
                found.append((x @ w).softmax(1).sum(0))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 20 and all(torch.equal(each, found[0]) for each in found)


def test_importing_the_name_imports_no_torch() -> None:
    program = "import sys, samerun; samerun.portable; print({'torch', 'numpy'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


def test_flushed_subnormals_are_refused() -> None:
    if not torch.set_flush_denormal(True):
        pytest.skip("this machine cannot flush subnormals")
    try:
        with pytest.raises(samerun.SamerunError, match="subnormal numbers are flushed to zero"):
            samerun.portable().__enter__()
    finally:
        torch.set_flush_denormal(False)
    assert not is_inside_portable()


class Squares(torch.utils.data.Dataset[Any]):
    def __len__(self) -> int:
        return 4

    def __getitem__(self, i: int) -> Any:
        return is_inside_portable(), (torch.arange(300.0) * (i + 1)).sin().sum()


def test_forked_workers_are_inside() -> None:
    if not hasattr(os, "fork"):
        pytest.skip("no fork here")
    with samerun.portable():
        loader = torch.utils.data.DataLoader(Squares(), num_workers=2, multiprocessing_context="fork")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            found = list(loader)
        here = [Squares()[i][1] for i in range(4)]
    assert all(bool(inside) for inside, _ in found)
    assert all(torch.equal(value[0], mine) for (_, value), mine in zip(found, here, strict=True))


# --- the contract ---------------------------------------------------------------------------------------------
@pytest.mark.parametrize("name", NAMES)
def test_every_operator_of_training_is_in_the_table(name: str) -> None:
    collecting = Collecting()
    with collecting:
        _, step = make(name)
        step(0)
    plain = {func for func in collecting.operators if not func._schema.name.startswith("profiler::")}
    torchs_own = {"aten::mkldnn_rnn_layer", "aten::mkldnn_rnn_layer_backward"}  # torch.lstm is taken over whole,
    torchs_own |= {func._schema.name for func in plain if "flash_attention_for_cpu" in func._schema.name}  # as is this
    inside = Collecting()
    with samerun.portable(), inside:
        _, step = make(name)
        assert bool(torch.isfinite(step(0)))
    assert {func._schema.name for func in inside.operators}.isdisjoint(torchs_own)
    uncovered = {
        str(func)
        for func in plain
        if func._schema.name not in torchs_own and resolve_runner_unless_exact(func) is _raise_no_portable_kernel
    }
    assert not uncovered
    assert len(plain) > 20


def test_an_operator_outside_the_table_is_refused_with_line_and_way_out() -> None:
    x = torch.randn(3, 3)
    with samerun.portable(), pytest.raises(samerun.NotPortableError) as caught:
        torch.linalg.eig(x)  # this line
    line = next(i for i, text in enumerate(Path(__file__).read_text().splitlines(), 1) if "# this line" in text)
    assert caught.value.message.endswith(f"test_portable.py:{line}: aten.linalg_eig.default has no portable kernel "
                                         "for float32.")  # fmt: skip
    assert caught.value.hint is not None and "before the portable part" in caught.value.hint
    assert not is_inside_portable()


@pytest.mark.parametrize(
    ("what", "words"),
    [
        (lambda: torch.ones(2, dtype=torch.complex64).sin(), "complex64"),
        (lambda: torch.eye(4).to_sparse_bsr(2) @ torch.eye(4), "layout sparse_bsr|to_sparse_bsr"),
        (lambda: torch.randint(2, (3,), dtype=torch.complex64), "complex64"),
        (lambda: torch.special.bessel_y0(torch.ones(3)), "bessel_y0"),
        (lambda: torch.ones(2, 2, dtype=torch.complex64).inverse(), "inv"),
    ],
)
def test_types_layouts_and_settings_outside_it_are_refused(what: Any, words: str) -> None:
    with samerun.portable(), pytest.raises(samerun.NotPortableError, match=words) as caught:
        what()
    assert "test_portable.py:" in caught.value.message
    assert caught.value.hint


def test_the_nearest_operators_share_a_word_with_what_is_refused() -> None:
    for name, first in (
        ("other_max_pool2d", "adaptive_max_pool2d"),
        ("upsample_other2d", "upsample_bilinear2d"),
        ("other_dropout", "native_dropout"),
    ):
        assert first in find_similar_portable_operators(name), find_similar_portable_operators(name)
    for name in ("_is_all_true", "linalg_eig", "_other_loss", "_foreach_x"):
        assert find_similar_portable_operators(name) == [], (
            "names that only look alike, or share a word that says nothing"
        )
    assert not any(
        name.startswith("_") or name.endswith("_backward")
        for name in find_similar_portable_operators("_softmax_backward_x")
    )
    with samerun.portable(), pytest.raises(samerun.NotPortableError) as caught:
        torch.special.airy_ai(torch.ones(3))
    assert caught.value.hint is not None and caught.value.hint.startswith(GENERAL_ADVICE)


def test_with_warn_torchs_own_kernel_runs() -> None:
    x = torch.randn(3, 3)
    with samerun.portable(unsupported="warn"):
        with pytest.warns(samerun.NotPortableWarning, match=r"linalg_eig"):
            values = torch.linalg.eig(x)[0]
        with samerun.portable(), pytest.raises(samerun.NotPortableError):
            torch.linalg.eig(x)
        with pytest.warns(samerun.NotPortableWarning):
            torch.linalg.eig(x)
    torch.testing.assert_close(values, torch.linalg.eig(x)[0])


def test_torchs_own_errors_stay_torchs() -> None:
    with samerun.portable():
        with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
            torch.mm(torch.ones(2, 3), torch.ones(2, 3))
        with pytest.raises(RuntimeError, match=r"can.t be greater than actual input size"):
            F.conv2d(torch.ones(1, 1, 2, 2), torch.ones(1, 1, 3, 3))
        with pytest.raises(IndexError, match="out of bounds"):
            F.nll_loss(torch.zeros(2, 3), torch.tensor([0, 5]))


def test_names_of_the_table_are_torchs() -> None:
    removed = {"cholesky"}  # torch 2.15 has torch.linalg.cholesky alone
    names = [name.split("::")[1].split(".")[0] for name in torch._C._dispatch_get_all_op_names()]
    known = {*names, *(name.removesuffix("_") for name in names)}
    assert portable_operator_names() - removed <= known, portable_operator_names() - known
    assert "__and__" in portable_operator_names()


# --- random numbers -------------------------------------------------------------------------------------------
def test_seeds_states_and_generators_mean_what_they_always_do() -> None:
    with samerun.portable():
        torch.manual_seed(3)
        first, state, second = torch.rand(5), torch.get_rng_state(), torch.rand(5)
        assert not torch.equal(first, second)
        torch.manual_seed(3)
        assert torch.equal(torch.rand(5), first)
        torch.set_rng_state(state)
        assert torch.equal(torch.rand(5), second)
        one = torch.Generator().manual_seed(3)
        assert torch.equal(torch.rand(5, generator=one), first)
        other = torch.Generator()
        other.set_state(state)
        assert torch.equal(torch.rand(5, generator=other), second)


def test_the_position_survives_a_long_stream() -> None:
    generator = torch.Generator().manual_seed(5)
    with samerun.portable():
        for _ in range(1400):
            torch.rand(1, generator=generator)
        copy = torch.Generator()
        copy.set_state(generator.get_state())
        assert torch.equal(torch.rand(4, generator=copy), torch.rand(4, generator=generator))
    from samerun.numerics.kernels.random import advance_generator

    assert advance_generator(generator) == (5, 1401)


def test_more_generators_than_are_kept_in_mind_count_their_draws() -> None:
    with samerun.portable():
        many = [torch.Generator().manual_seed(seed) for seed in range(100)]
        for _ in range(2):
            drawn = [torch.rand(2, generator=generator) for generator in many]
        alone = torch.Generator().manual_seed(0)
        assert not torch.equal(torch.rand(2, generator=alone), drawn[0])
        assert torch.equal(torch.rand(2, generator=alone), drawn[0])


def test_a_prefix_of_a_draw_does_not_depend_on_its_size() -> None:
    with samerun.portable():
        for size in (1, 3, 4, 1000):
            assert torch.equal(torch.randn(1000, generator=torch.Generator().manual_seed(1))[:size],
                               torch.randn(size, generator=torch.Generator().manual_seed(1)))  # fmt: skip


def test_distributions() -> None:
    with samerun.portable():
        torch.manual_seed(0)
        u, z = torch.rand(40000), torch.randn(40000)
        assert u.min() >= 0 and u.max() < 1
        assert abs(float(u.mean()) - 0.5) < 0.01 and abs(float(z.mean())) < 0.02 and abs(float(z.std()) - 1) < 0.02
        counts = torch.bincount(torch.randint(3, 8, (20000,)), minlength=8)
        assert not counts[:3].any() and bool((counts[3:] > 3700).all())
        assert torch.equal(torch.randperm(100).sort()[0], torch.arange(100))
        assert abs(float(torch.full((20000,), 0.3).bernoulli().mean()) - 0.3) < 0.02
        kept = F.dropout(torch.ones(20000), 0.25)
        assert set(kept.unique().tolist()) == {0.0, float(torch.tensor(1.0) / 0.75)}
        rows = torch.multinomial(torch.tensor([0.0, 1.0, 3.0]), 2)
        assert sorted(rows.tolist()) == [1, 2]


def test_torch_distributions_check_their_arguments() -> None:
    """They ask `torch._is_all_true` of every argument, which no other code does; not of themselves after a compilation
    (another test's)."""
    with samerun.portable():
        logits = torch.randn(4, 3, requires_grad=True)
        policy = torch.distributions.Categorical(logits=logits, validate_args=True)
        (policy.log_prob(policy.sample()).sum() + policy.entropy().mean()).backward()
        normal = torch.distributions.Normal(torch.zeros(3), torch.ones(3), validate_args=True)
        assert normal.log_prob(normal.rsample()).shape == (3,)
        with pytest.raises(ValueError, match="scale"):
            torch.distributions.Normal(torch.zeros(3), -torch.ones(3), validate_args=True)
    assert logits.grad is not None


# --- the same bits ---------------------------------------------------------------------------------------------
@pytest.mark.parametrize("name", ["resnet18", "gpt", "unet", "mlp"])
def test_a_row_does_not_depend_on_the_batch(name: str) -> None:
    with samerun.portable(), torch.no_grad():
        model, _ = make(name)
        model.eval()
        shape = {"resnet18": (16, 3, 32, 32), "gpt": (16, 24), "unet": (16, 3, 16, 16), "mlp": (16, 37)}[name]
        x = torch.randint(0, 50, shape) if name == "gpt" else torch.randn(shape)
        rows = [model(x[:n])[0] for n in (1, 2, 3, 5, 8, 16)]
    assert all(torch.equal(row, rows[0]) for row in rows)


SETTINGS: list[dict[str, str]] = [
    {},
    {"threads": "2"},
    {"ATEN_CPU_CAPABILITY": "default"},
    {"ATEN_CPU_CAPABILITY": "avx2"},
    {"MKL_CBWR": "COMPATIBLE"},
    {"ONEDNN_MAX_CPU_ISA": "SSE41"},
    {"SAMERUN_NUMERICS_LEVEL": "plain"},
    {"SAMERUN_NUMERICS_LEVEL": "avx2"},
]


def trained(models: str, steps: int, setting: dict[str, str]) -> str:
    setting = dict(setting)
    command = [sys.executable, str(SUPPORT / "portable_models.py"), models, str(steps), setting.pop("threads", "1")]
    return subprocess.run(command, env={**os.environ, **setting}, capture_output=True, text=True, check=True).stdout


def runs_here(setting: dict[str, str]) -> bool:
    return setting.get("SAMERUN_NUMERICS_LEVEL", "reference") in library.supported_levels()


@pytest.mark.slow
def test_two_processes_of_different_settings_train_alike() -> None:
    varied = {"threads": "2", "ATEN_CPU_CAPABILITY": "default", "MKL_CBWR": "COMPATIBLE"}
    if library.is_available():
        varied["SAMERUN_NUMERICS_LEVEL"] = library.supported_levels()[1]
    found = trained(",".join(NAMES), 2, {})
    assert len(found.splitlines()) == len(NAMES) and found == trained(",".join(NAMES), 2, varied)


@pytest.mark.exhaustive
def test_training_has_one_digest_under_every_setting() -> None:
    found = {str(setting): trained(",".join(NAMES), 20, setting) for setting in SETTINGS if runs_here(setting)}
    assert len(set(found.values())) == 1, found


@pytest.mark.parametrize(
    ("mean", "std", "low", "high", "digest"),
    [
        (0.0, 0.02, -2.0, 2.0, "c0395626a8fbab53"),
        (0.0, 1.0, -0.5, 2.0, "8b9ef44dd7fe2127"),
        (0.0, 1.0, 2.0, 3.0, "545b73f0bbb6cdb6"),
    ],
)
def test_truncated_normal_numbers_are_drawn_alike_by_every_release(
    mean: float, std: float, low: float, high: float, digest: str
) -> None:
    with samerun.portable():
        torch.manual_seed(0)
        numbers = torch.nn.init.trunc_normal_(torch.empty(1000), mean, std, low, high)
        following = torch.rand(8)
    assert low <= numbers.min() and numbers.max() <= high
    assert hashlib.sha256(torch.cat([numbers, following]).numpy().tobytes()).hexdigest()[:16] == digest

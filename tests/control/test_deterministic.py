"""`deterministic()`: its three ways, what comes too late, what comes later, and the traps around it."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import random
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional

import samerun
from samerun.base.errors import SamerunError, SeedError, SwitchError, TooLateError
from samerun.control.determinism.survey import required_environment
from samerun.control.deterministic_kernels import install
from samerun.control.switches import variables

C: Any = torch._C


@pytest.fixture(autouse=True)
def _hash_seed_at_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if the tests had been started with PYTHONHASHSEED=0; fresh processes show what happens without."""
    monkeypatch.setattr(variables, "read_environ_at_process_start", lambda: {"PYTHONHASHSEED": "0"})
    monkeypatch.setattr(variables, "python_may_hash_with_seed", lambda seed: True)
    monkeypatch.setenv("PYTHONHASHSEED", "0")
    monkeypatch.delenv("CUBLAS_WORKSPACE_CONFIG", raising=False)


def draws() -> Any:
    return random.random(), np.random.rand(), torch.rand(2).tolist()


def on() -> bool:
    return torch.are_deterministic_algorithms_enabled()


def fresh(program: str, *, code: int = 0, **environment: str | None) -> subprocess.CompletedProcess[str]:
    """`program` in a process of its own; by default started with PYTHONHASHSEED=0."""
    variables = {**os.environ, "PYTHONHASHSEED": "0", **environment}
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program],
        capture_output=True,
        text=True,
        check=False,
        env={name: value for name, value in variables.items() if value is not None},
    )
    assert done.returncode == code, done.stderr
    return done


def told(program: str, **environment: str | None) -> Any:
    """What it prints, as JSON."""
    return json.loads(fresh(program, **environment).stdout)


# The three ways.


def test_a_block_starts_from_the_seed_and_gives_the_streams_back() -> None:
    samerun.seed_everything(5)
    outside = [draws(), draws()]
    samerun.seed_everything(7)
    inside = draws()
    samerun.seed_everything(5)
    assert draws() == outside[0]
    for _ in range(2):
        with samerun.deterministic(7):
            assert on() and draws() == inside
        assert not on()
    assert draws() == outside[1]


def test_without_a_seed_the_streams_go_on_inside_and_are_given_back() -> None:
    samerun.seed_everything(5)
    first = draws()
    samerun.seed_everything(5)
    with samerun.deterministic():
        assert draws() == first
    assert draws() == first


def test_entering_the_same_one_again_starts_again() -> None:
    mode = samerun.deterministic(3)
    with mode:
        first = draws()
        with mode:
            assert draws() == first and on()
        assert on()
    assert not on()
    with mode:
        assert draws() == first
    assert not on()


def test_a_plain_call_stays_in_force() -> None:
    program = """
import samerun, torch, os, json, gc
samerun.deterministic(0)
gc.collect()
print(json.dumps([torch.are_deterministic_algorithms_enabled(), torch.backends.cudnn.deterministic,
                  os.environ["CUBLAS_WORKSPACE_CONFIG"]]))
"""
    assert told(program, CUBLAS_WORKSPACE_CONFIG=None) == [True, True, ":4096:8"]


def test_decorating_leaves_nothing_in_force() -> None:
    samerun.seed_everything(1)
    before = draws()
    samerun.seed_everything(1)

    @samerun.deterministic(3)
    def decorated(more: int = 0) -> Any:
        """Its words."""
        return on(), draws(), more

    @samerun.deterministic
    def bare() -> bool:
        return on()

    assert not on() and draws() == before
    assert decorated(more=2) == decorated(2) and decorated()[0] and decorated.__doc__ == "Its words."
    assert bare() and not on()


def test_a_decorated_generator_is_inside_only_while_it_runs() -> None:
    @samerun.deterministic(3)
    def steps() -> Iterator[Any]:
        for _ in range(3):
            yield on(), draws()

    samerun.seed_everything(1)
    expected = [draws() for _ in range(3)]
    samerun.seed_everything(1)
    alone = list(steps())
    between = []
    mixed = []
    for item in steps():
        mixed.append(item)
        assert not on()
        between.append(draws())
    assert mixed == alone and all(inside for inside, _ in mixed) and between == expected


def test_decorated_coroutines_and_async_generators() -> None:
    @samerun.deterministic(3)
    async def work() -> Any:
        first = on(), draws()
        await asyncio.sleep(0)
        return first, on(), draws()

    @samerun.deterministic(3)
    async def stream() -> AsyncIterator[Any]:
        yield on(), draws()
        await asyncio.sleep(0)
        yield on(), draws()

    async def both() -> Any:
        results = await asyncio.gather(work(), work())
        assert not on()
        items = []
        async for item in stream():
            assert not on()
            items.append(item)
        return results, items

    (one, other), items = asyncio.run(both())
    assert one == other and one[0][0] and one[1]
    assert items == [one[0], (one[1], one[2])]


def test_an_exception_goes_through_and_everything_is_given_back() -> None:
    error = KeyError("x")
    with pytest.raises(KeyError) as caught, samerun.deterministic(0):
        raise error
    assert caught.value is error and not on()


# What it does.


def test_operators_are_deterministic_and_memory_is_filled() -> None:
    with samerun.deterministic(0):
        assert torch.isnan(torch.empty(5)).all()
        assert torch.zeros(3).put_(torch.tensor([0, 0]), torch.tensor([1.0, 2.0])).tolist() == [2, 0, 0]
        install.uninstall()  # torch by itself
        with pytest.raises(RuntimeError, match="does not have a deterministic implementation"):
            torch.zeros(3).put_(torch.tensor([0]), torch.ones(1))
    with samerun.deterministic(0, fill_uninitialized_memory=False):
        assert not torch.utils.deterministic.fill_uninitialized_memory
    with samerun.deterministic(0, level="warn"), pytest.warns(UserWarning, match="deterministic implementation"):
        install.uninstall()
        torch.zeros(3).put_(torch.tensor([0]), torch.ones(1))


def test_precision_and_benchmark_can_be_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.backends.cudnn, "benchmark", True)
    with samerun.deterministic(precision="keep", cudnn_benchmark="keep"):
        assert torch.backends.cudnn.benchmark and torch.backends.cudnn.allow_tf32
        assert torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction
    with samerun.deterministic():
        assert not torch.backends.cudnn.benchmark and not torch.backends.cudnn.allow_tf32
    assert torch.backends.cudnn.benchmark and torch.backends.cudnn.allow_tf32


def test_threads() -> None:
    before = torch.get_num_threads()
    with samerun.deterministic(threads=3):
        assert torch.get_num_threads() == 3
        with samerun.deterministic(threads=1):
            assert torch.get_num_threads() == 1
        assert torch.get_num_threads() == 3
    assert torch.get_num_threads() == before


# What comes later.


@pytest.mark.parametrize("with_block", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_torch_may_come_later(with_block: bool) -> None:
    start = "with samerun.deterministic(4):" if with_block else "samerun.deterministic(4)\nif True:"
    program = f"""
import sys, json, samerun
{start}
    early = "torch" in sys.modules or "numpy" in sys.modules
    import torch
    inside = [torch.are_deterministic_algorithms_enabled(), torch.backends.cudnn.deterministic, torch.rand(1).item()]
print(json.dumps([early, inside, torch.are_deterministic_algorithms_enabled(), torch.backends.cudnn.deterministic,
                  torch.backends.cudnn.allow_tf32]))
"""
    samerun.seed_everything(4)
    first = torch.rand(1).item()
    early, inside, *after = told(program)
    assert not early and inside == [True, True, first]
    assert after == ([False, False, True] if with_block else [True, True, False])


@pytest.mark.exhaustive
def test_inductor_may_come_later_and_is_not_imported() -> None:
    program = """
import sys, json, samerun, torch
with samerun.deterministic(0):
    loaded = "torch._inductor.config" in sys.modules
    import torch._inductor.config as config
    inside = config.deterministic
    with samerun.deterministic(1):
        nested = config.deterministic
    again = config.deterministic
print(json.dumps([loaded, inside, nested, again, config.deterministic]))
"""
    assert told(program) == [False, True, True, True, False]


@pytest.mark.slow
def test_inductor_loaded_inside_a_nested_block_is_given_back_by_both() -> None:
    program = """
import json, samerun, torch
with samerun.deterministic(0):
    with samerun.deterministic(1):
        import torch._inductor.config as config
        inside = config.deterministic
    between = config.deterministic
print(json.dumps([inside, between, config.deterministic]))
"""
    assert told(program) == [True, True, False]


# What comes too late.


@pytest.mark.parametrize(
    "inside", [pytest.param("", marks=pytest.mark.slow), "import os; os.environ['PYTHONHASHSEED'] = '0'"]
)
def test_a_hash_seed_that_was_not_there_at_the_start(inside: str) -> None:
    program = f"""
import json, os, torch, samerun
{inside}
before = dict(os.environ)
try:
    samerun.deterministic(0, level="error")
except samerun.TooLateError as error:
    print(json.dumps([str(error), torch.are_deterministic_algorithms_enabled(), dict(os.environ) == before]))
"""
    message, is_on, untouched = told(program, PYTHONHASHSEED=None)
    assert not is_on and untouched
    assert "PYTHONHASHSEED was not set when the interpreter started" in message
    assert "samerun run" in message and "export PYTHONHASHSEED=0" in message
    assert ("PYTHONHASHSEED=0, set later, changes nothing" in message) == bool(inside)


def test_a_random_hash_seed_is_too_late_as_well() -> None:
    done = fresh("import samerun; samerun.deterministic(0)", code=1, PYTHONHASHSEED="random")
    assert "TooLateError" in done.stderr and "'random'" in done.stderr and "0 to 4294967295" in done.stderr


def test_any_fixed_hash_seed_will_do() -> None:
    fresh("import samerun; samerun.deterministic(0)", PYTHONHASHSEED="12345")


def test_a_hash_seed_is_read_from_the_interpreter() -> None:
    """-I starts Python without looking at the environment."""
    program = f"import sys; sys.path[:0] = {sys.path!r}; import samerun; samerun.deterministic(0, level='error')"
    run = [sys.executable, "-I", "-c", program]
    done = subprocess.run(run, capture_output=True, text=True, check=False, env={**os.environ, "PYTHONHASHSEED": "0"})
    assert done.returncode == 1 and "PYTHONHASHSEED was not set" in done.stderr


@pytest.mark.exhaustive
def test_plain_python_and_notebooks_are_told_once() -> None:
    program = "import samerun; samerun.deterministic(0)\nwith samerun.deterministic(0): import torch; torch.rand(2)"
    for python in (["-c", program], ["-c", f"exec({program!r})"], ["-i"]):
        done = subprocess.run(
            [sys.executable, *python], input=f"{program}\n\n" if python == ["-i"] else "", capture_output=True,
            text=True, env={k: v for k, v in os.environ.items() if k != "PYTHONHASHSEED"},
        )  # fmt: skip
        assert done.returncode == 0 and "Error" not in done.stderr, done.stderr
        assert done.stderr.count("PYTHONHASHSEED was not set when Python started") == 1
        assert done.stderr.count("samerun run") == 1


def test_with_warn_it_is_logged_and_the_rest_is_set(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(variables, "read_environ_at_process_start", dict)
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":0:0")
    with caplog.at_level(logging.WARNING, "samerun"), samerun.deterministic(0, level="warn"):
        assert on() and os.environ["CUBLAS_WORKSPACE_CONFIG"] == ":0:0"
    messages = [record.getMessage() for record in caplog.records]
    assert len(messages) == 2 and "PYTHONHASHSEED" in messages[0] and ":4096:8" in messages[1]


def test_all_that_is_wrong_is_named_at_once_and_nothing_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(variables, "read_environ_at_process_start", dict)
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":0:0")
    samerun.seed_everything(1)
    state, environ = samerun.get_rng_state()["python"], dict(os.environ)
    with pytest.raises(TooLateError) as caught:
        samerun.deterministic(0)
    assert "PYTHONHASHSEED" in str(caught.value) and "CUBLAS_WORKSPACE_CONFIG=:0:0" in str(caught.value)
    assert not on() and dict(os.environ) == environ and samerun.get_rng_state()["python"] == state
    assert isinstance(caught.value, SamerunError)


def test_cublas_after_cuda_has_started(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    with pytest.raises(TooLateError, match="CUBLAS_WORKSPACE_CONFIG was not set when CUDA started"):
        samerun.deterministic(0)
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":16:8")
    with samerun.deterministic():
        assert os.environ["CUBLAS_WORKSPACE_CONFIG"] == ":16:8"


@pytest.mark.parametrize("value", [":0:0", "", "4096:8", ":4096:8 "])
def test_an_invalid_value_is_an_error_that_names_the_valid_ones(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", value)
    with pytest.raises(SwitchError, match=":4096:8, :16:8") as caught:
        samerun.deterministic(0)
    assert f"CUBLAS_WORKSPACE_CONFIG={value} " in str(caught.value) and not on()
    assert os.environ["CUBLAS_WORKSPACE_CONFIG"] == value


def test_tunable_op_asked_for_by_the_environment_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTORCH_TUNABLEOP_ENABLED", "1")
    with pytest.raises(SwitchError, match="PYTORCH_TUNABLEOP_ENABLED=1"):
        samerun.deterministic(0)


@pytest.mark.parametrize("own", [None, ":16:8"])
def test_the_environment_is_given_back_as_it_was(own: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    if own is not None:
        monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", own)
    before = dict(os.environ)
    with samerun.deterministic():
        assert os.environ["CUBLAS_WORKSPACE_CONFIG"] == (own or ":4096:8")
        os.environ["CUBLAS_WORKSPACE_CONFIG"] = "mine"
        os.environ["NCCL_ALGO"] = "Ring"
        del os.environ["PYTHONHASHSEED"]
    assert dict(os.environ) == before


# The environment before the start.


def test_the_environment_that_is_wanted_needs_no_torch() -> None:
    program = """
import json, sys
from samerun.control.determinism.survey import required_environment, survey
survey()
print(json.dumps([required_environment(threads=2, user_environment={}), "torch" in sys.modules]))
"""
    wanted, imported = told(program)
    assert not imported
    assert wanted == {
        "PYTHONHASHSEED": "0",
        "CUBLAS_WORKSPACE_CONFIG": ":4096:8",
        "TORCH_DISABLE_NATIVE_JIT": "1",
        "OMP_NUM_THREADS": "2",
        "MKL_NUM_THREADS": "2",
        "MKL_DYNAMIC": "FALSE",
    }


def test_the_environment_that_is_wanted_is_enough() -> None:
    names: dict[str, str | None] = dict.fromkeys(required_environment(user_environment={}))
    names.update(required_environment(user_environment={}))
    fresh("import samerun, torch; samerun.deterministic(0)", **names)


def test_values_of_the_users_own_are_kept_or_refused() -> None:
    own = {"PYTHONHASHSEED": "7", "CUBLAS_WORKSPACE_CONFIG": ":16:8", "PATH": "/bin"}
    wanted = required_environment(user_environment=own)
    assert (wanted["PYTHONHASHSEED"], wanted["CUBLAS_WORKSPACE_CONFIG"]) == ("7", ":16:8") and "PATH" not in wanted
    with pytest.raises(SwitchError, match="PYTHONHASHSEED=random"):
        required_environment(user_environment={"PYTHONHASHSEED": "random"})
    with pytest.raises(SwitchError, match="OMP_NUM_THREADS=4"):
        required_environment(threads=2, user_environment={"OMP_NUM_THREADS": "4"})


# Traps.


def test_the_hash_seed_is_never_set_inside() -> None:
    """There it would change nothing, and make processes that start later hash otherwise than this one."""
    program = """
import json, os, samerun
samerun.deterministic(0, level="warn")
print(json.dumps(os.environ.get("PYTHONHASHSEED")))
"""
    assert told(program, PYTHONHASHSEED=None) is None


def test_memory_efficient_attention_is_off_where_operators_only_warn() -> None:
    assert torch.backends.cuda.mem_efficient_sdp_enabled()
    with samerun.deterministic(level="warn"):
        assert not torch.backends.cuda.mem_efficient_sdp_enabled()
    with samerun.deterministic():
        assert torch.backends.cuda.mem_efficient_sdp_enabled() and not torch.backends.cuda.cudnn_sdp_enabled()
    assert torch.backends.cuda.mem_efficient_sdp_enabled() and torch.backends.cuda.cudnn_sdp_enabled()


def test_products_are_not_split_along_k() -> None:
    with samerun.deterministic():
        assert C._get_cublas_allow_bf16_reduced_precision_reduction() == (False, False)
        assert C._get_cublas_allow_fp16_reduced_precision_reduction() == (False, False)
    assert C._get_cublas_allow_bf16_reduced_precision_reduction() == (True, True)


def test_setting_one_dnns_precision_inside_does_not_leak_to_every_backend() -> None:
    before = torch.backends.fp32_precision
    with samerun.deterministic():
        torch.backends.mkldnn.fp32_precision = "tf32"
        assert torch.backends.fp32_precision == "tf32", "torch writes the generic value"
    assert torch.backends.fp32_precision == before


def test_the_older_getters_and_cudnn_flags_go_on_working_inside() -> None:
    with samerun.deterministic():
        assert torch.get_float32_matmul_precision() == "highest"
        assert torch.backends.cuda.matmul.allow_tf32 is False and torch.backends.cudnn.allow_tf32 is False
        with torch.backends.cudnn.flags(enabled=False):
            pass
        assert torch.backends.cudnn.deterministic and torch.backends.cudnn.conv.fp32_precision == "ieee"


def test_an_inner_mode_of_torch_is_seen_through() -> None:
    """A flag of our own would say "on" here."""
    with samerun.deterministic():
        torch.use_deterministic_algorithms(False)
        with samerun.deterministic():
            assert on()
        assert not on()
    assert not on()


# Bad arguments.


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"level": "strict"}, "deterministic(level='strict'): level is 'error' or 'warn'."),
        ({"precision": "tf32"}, "precision is 'ieee' or 'keep'."),
        ({"cudnn_benchmark": True}, "cudnn_benchmark is 'off' or 'keep'."),
        ({"unseeded": "raise"}, "unseeded is 'ignore' or 'warn' or 'error'."),
        ({"fill_uninitialized_memory": 1}, "fill_uninitialized_memory is True or False."),
        ({"threads": 0}, "deterministic(threads=0)"),
        ({"threads": True}, "deterministic(threads=True)"),
        ({"threads": 2.0}, "deterministic(threads=2.0)"),
    ],
    ids=str,
)
def test_arguments_that_are_none(arguments: dict[str, Any], said: str) -> None:
    with pytest.raises(SwitchError) as caught:
        samerun.deterministic(0, **arguments)
    assert said in str(caught.value) and not on()


@pytest.mark.parametrize("seed", [-1, 2**64, True, "0", 1.0])
def test_seeds_that_are_none(seed: Any) -> None:
    with pytest.raises(SeedError, match=r"deterministic\(seed="):
        samerun.deterministic(seed)
    assert not on()


# What torch refuses is explained.


def notes(error: BaseException) -> str:
    return "\n".join([str(error), *getattr(error, "__notes__", ())])


def test_a_refused_operator_is_told_with_the_users_line() -> None:
    x = torch.rand(1, 1, 4, 4)
    pooled, places = functional.max_pool2d(x, 2, return_indices=True)
    with pytest.raises(RuntimeError) as caught, samerun.deterministic():
        install.uninstall()  # so that it is refused
        functional.max_unpool2d(pooled, places, 2)  # the line
    said = notes(caught.value)
    assert "tests/control/test_deterministic.py:" in said or "test_deterministic.py:" in said
    assert "functional.max_unpool2d(pooled, places, 2)  # the line" in said and "warn_only=True" in said
    assert "max_unpooling2d_forward_out" in said


LIBRARY = """
class AvgPool3D(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2
    @staticmethod
    def backward(ctx, gradient):
        raise RuntimeError("avg_pool3d_backward_cuda does not have a deterministic implementation, but you set ...")
"""


def library_function() -> Any:
    """A function of torch's engine whose backward refuses, as several on CUDA do; not in the user's files."""
    scope: dict[str, Any] = {"torch": torch, "__name__": "some_library"}
    exec(compile(LIBRARY, "<some library>", "exec"), scope)
    return scope["AvgPool3D"]


@pytest.mark.parametrize("anomaly", [True, False])
@pytest.mark.filterwarnings("ignore:Error detected in AvgPool3D")
@pytest.mark.filterwarnings("ignore:Anomaly Detection has been enabled")
def test_a_refused_backward_is_told_with_the_line_of_the_forward_pass(anomaly: bool) -> None:
    pool = library_function()
    x = torch.ones(2, requires_grad=True)
    kept = torch.autograd.set_detect_anomaly(anomaly, check_nan=False)
    with pytest.raises(RuntimeError) as caught, samerun.deterministic(), kept:
        y = pool.apply(x)  # forward
        y.sum().backward()  # backward
    said = notes(caught.value)
    assert "y.sum().backward()  # backward" in said
    lines = Path(__file__).read_text(encoding="utf-8").splitlines()
    forward = next(n for n, line in enumerate(lines, 1) if line.strip() == "y = pool.apply(x)  # forward")
    if anomaly:
        assert f"test_deterministic.py:{forward} called" in said
    else:
        assert "set_detect_anomaly(True, check_nan=False)" in said


@pytest.mark.slow
def test_without_anomaly_mode_likely_lines_are_told(tmp_path: Path) -> None:
    program = """import torch, samerun, model
net = model.Net()
with samerun.deterministic(0):
    net(torch.ones(2, requires_grad=True)).sum().backward()
"""
    model = """from torch import nn
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.pool = nn.AvgPool3d(2)  # not this: AvgPool3d
        self.other = nn.AvgPool2d(2)
    def forward(self, x):
        import library
        return library.AvgPool3D.apply(x)
"""
    package = tmp_path / "site-packages"
    package.mkdir()
    (package / "library.py").write_text(f"import torch\n{LIBRARY}")
    (tmp_path / "train.py").write_text(program)
    (tmp_path / "model.py").write_text(model)
    path = os.pathsep.join([str(package), *(each for each in sys.path if each)])
    done = subprocess.run(
        [sys.executable, "train.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONHASHSEED": "0", "PYTHONPATH": path},
    )
    assert "samerun: train.py:4 called avg_pool3d_backward_cuda" in done.stderr, done.stderr
    assert "likely of model.py:5, model.py:9." in done.stderr


@pytest.mark.slow
def test_an_error_that_ends_the_program_is_explained_too() -> None:
    program = """
import samerun, torch; from samerun.control.deterministic_kernels import install
samerun.deterministic(0); install.uninstall()
torch.zeros(3).put_(torch.tensor([0]), torch.ones(1))
"""
    done = fresh(program, code=1)
    assert "samerun: <string>:4 called put_" in done.stderr


def test_other_errors_are_left_alone() -> None:
    with pytest.raises(RuntimeError) as caught, samerun.deterministic():
        raise RuntimeError("mine")
    assert notes(caught.value) == "mine"


def test_a_decorated_generator_warns_once(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(variables, "read_environ_at_process_start", dict)

    @samerun.deterministic(0, level="warn")
    def steps() -> Iterator[int]:
        yield from range(5)

    caplog.clear()
    with caplog.at_level(logging.WARNING, "samerun"):
        assert list(steps()) == list(range(5))
    assert len(caplog.records) == 1


@pytest.mark.exhaustive
def test_a_plain_call_in_a_loop_does_not_pile_up() -> None:
    program = """
import sys, samerun, torch; from samerun.control.deterministic_kernels import install
for seed in range(3000):
    samerun.deterministic(seed, unseeded="error")
install.uninstall(); torch.zeros(3).put_(torch.tensor([0]), torch.ones(1))
"""
    done = fresh(program, code=1)
    assert "samerun: <string>:5 called put_" in done.stderr and "RecursionError" not in done.stderr


PRECISIONS = """
import json, torch, samerun
C = torch._C
keys = [(b, o) for b in ("cuda", "mkldnn") for o in ("all", "matmul", "conv", "rnn")]
def read(): return {f"{b}.{o}": C._get_fp32_precision_getter(b, o) for b, o in keys}
def after(value):
    torch.backends.fp32_precision = value
    return read()
"""


@pytest.mark.slow
@pytest.mark.parametrize("own", ["tf32", "ieee"])
def test_a_precision_that_followed_its_parent_follows_it_afterwards(own: str) -> None:
    """What is in force tells nothing about it: a part set to "tf32" reads like one that follows a "tf32"."""
    program = f"""
{PRECISIONS}
torch.backends.fp32_precision = {own!r}
torch.backends.mkldnn.conv.fp32_precision = "tf32"
with samerun.deterministic():
    inside = read()
print(json.dumps([inside, after("ieee"), after("tf32")]))
"""
    inside, ieee, tf32 = told(program)
    assert set(inside.values()) == {"ieee"}
    assert {name for name, value in ieee.items() if value != "ieee"} - {"cuda.conv", "cuda.rnn"} == {"mkldnn.conv"}
    assert set(tf32.values()) == {"tf32"}


@pytest.mark.slow
def test_keeping_the_precision_leaves_even_what_cannot_be_read() -> None:
    """cuDNN starts as "TF32 until the parent is set"."""
    program = f"""
{PRECISIONS}
with samerun.deterministic(precision="keep"):
    inside = read()
print(json.dumps([inside["cuda.conv"], after("ieee")["cuda.conv"]]))
"""
    assert told(program) == ["tf32", "ieee"]

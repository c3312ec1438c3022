"""Every switch of the table: set, read back from torch, nested, given back as it was found, whatever happened."""

from __future__ import annotations

import copy
import importlib
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch._inductor.config as inductor

import samerun
from samerun.control.determinism import mode
from samerun.control.deterministic_kernels import install
from samerun.control.rng.state import get_rng_state
from samerun.control.switches import fp32_precision, variables
from samerun.control.switches.switch import Policy, Switch
from samerun.control.switches.table import SWITCHES

C: Any = torch._C
POLICIES = [
    Policy(),
    Policy(level="warn"),
    Policy(precision="keep"),
    Policy(fill_uninitialized_memory=False, cudnn_benchmark="keep"),
    Policy(threads=3),
]


def arguments(policy: Policy) -> dict[str, Any]:
    """What `deterministic` takes; `unset_hash_seed` follows from the level."""
    return {name: getattr(policy, name) for name in Policy.__dataclass_fields__ if name != "unset_hash_seed"}


def sdp(**enabled: bool) -> None:
    for kind, value in enabled.items():
        getattr(C, f"_set_sdp_use_{kind}")(value)


# Ways in which a program may set each switch itself, by torch's own functions.
OWN: dict[str, list[Callable[[], Any]]] = {
    "deterministic_algorithms": [
        lambda: torch.use_deterministic_algorithms(True),
        lambda: torch.use_deterministic_algorithms(True, warn_only=True),
        lambda: torch.use_deterministic_algorithms(False),
        lambda: torch.set_deterministic_debug_mode("warn"),
        lambda: torch.set_deterministic_debug_mode("default"),
    ],
    "deterministic_operators": [install.install, install.uninstall],
    "fill_uninitialized_memory": [lambda: setattr(torch.utils.deterministic, "fill_uninitialized_memory", False)],
    "cudnn_deterministic": [lambda: setattr(torch.backends.cudnn, "deterministic", True)],
    "cudnn_benchmark": [lambda: setattr(torch.backends.cudnn, "benchmark", True)],
    "mkldnn_deterministic": [lambda: setattr(torch.backends.mkldnn, "deterministic", True)],
    "fp32_precision": [
        lambda: torch.set_float32_matmul_precision("high"),
        lambda: torch.set_float32_matmul_precision("medium"),
        lambda: setattr(torch.backends.cuda.matmul, "allow_tf32", True),
        lambda: setattr(torch.backends.cudnn, "allow_tf32", False),
        lambda: setattr(torch.backends, "fp32_precision", "ieee"),
        lambda: setattr(torch.backends, "fp32_precision", "tf32"),
        lambda: setattr(torch.backends, "fp32_precision", "bf16"),
        lambda: setattr(torch.backends.cudnn, "fp32_precision", "ieee"),
        lambda: setattr(torch.backends.mkldnn, "fp32_precision", "tf32"),
        lambda: setattr(torch.backends.cudnn.conv, "fp32_precision", "ieee"),
        lambda: setattr(torch.backends.cuda.matmul, "fp32_precision", "tf32"),
        lambda: setattr(torch.backends.mkldnn.matmul, "fp32_precision", "bf16"),
        lambda: setattr(torch.backends.mkldnn.conv, "fp32_precision", "ieee"),
    ],
    "reduced_precision_reduction": [
        lambda: setattr(torch.backends.cuda.matmul, "allow_bf16_reduced_precision_reduction", False),
        lambda: setattr(torch.backends.cuda.matmul, "allow_fp16_reduced_precision_reduction", (False, False)),
    ],
    "fp16_accumulation": [lambda: setattr(torch.backends.cuda.matmul, "allow_fp16_accumulation", True)],
    "sdpa": [lambda: sdp(cudnn=False), lambda: sdp(flash=False, mem_efficient=False), lambda: sdp(math=False)],
    "math_sdp_reduction": [lambda: torch.backends.cuda.allow_fp16_bf16_reduction_math_sdp(True)],
    "inductor_deterministic": [lambda: setattr(inductor, "deterministic", True)],
    "inductor_autotuning": [lambda: setattr(inductor, "max_autotune", True)],
    "inductor_random": [lambda: setattr(inductor, "fallback_random", True)],
    "threads": [lambda: torch.set_num_threads(2)],
    "backends_enabled": [lambda: setattr(torch.backends.cudnn, "enabled", False)],
    "eager_choices": [lambda: torch.backends.mha.set_fastpath_enabled(False)],
}
IDS = [switch.name for switch in SWITCHES]
HERE = [
    switch for switch in SWITCHES if switch.can_be_restored() and (torch.version.cuda is None or switch.name in OWN)
]
"""A build of torch for CUDA has more of them, which are no matter of the CPU (test_switches_cuda.py)."""
EVERY_OWN = [(name, number) for name, ways in OWN.items() for number in range(len(ways))]


def everything() -> dict[str, Any]:
    """Every flag as torch tells it, what lies behind the flags, every variable, every random stream."""
    flags = {switch.name: copy.deepcopy(switch.read()) for switch in SWITCHES if switch.available()}
    told = {name: inductor._config[name].user_override for name in ("deterministic", "max_autotune")}
    overrides = {name: one.get() if hasattr(one, "get") else one for name, one in told.items()}  # torch 2.10 has values
    stored = fp32_precision.SWITCH.save_setting()
    streams = repr(sorted((name, repr(state)) for name, state in get_rng_state().items() if name != "torch"))
    return {
        "flags": flags,
        "overrides": overrides,
        "stored": stored,
        "environ": dict(os.environ),
        "streams": streams,
        "torch": torch.get_rng_state().tolist(),
        "excepthook": sys.excepthook,
        "holds": len(mode._holds),
    }


@pytest.fixture(autouse=True)
def _hash_seed_at_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if the tests had been started with PYTHONHASHSEED=0; what happens without is tested in fresh processes."""
    monkeypatch.setattr(variables, "read_environ_at_process_start", lambda: {"PYTHONHASHSEED": "0"})
    monkeypatch.setattr(variables, "python_may_hash_with_seed", lambda seed: True)
    monkeypatch.setenv("PYTHONHASHSEED", "0")
    for name in ("CUBLAS_WORKSPACE_CONFIG", "PYTORCH_TUNABLEOP_ENABLED", "TORCH_DISABLE_NATIVE_JIT"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(autouse=True)
def _flags_put_back() -> Iterator[None]:
    # They start as "TF32 until their parent is set", which nothing can set again (switches/fp32_precision.py).
    torch.backends.cudnn.conv.fp32_precision = torch.backends.cudnn.rnn.fp32_precision = "tf32"
    saved = [(switch, switch.save_setting()) for switch in HERE]
    yield
    for switch, value in reversed(saved):
        switch.restore_setting(value)


# The table.


def test_every_switch_of_the_folder_is_in_the_table() -> None:
    import samerun.control.switches.table as table

    names = [path.stem for path in Path(table.__file__).parent.glob("*.py")]
    modules = [importlib.import_module(f"samerun.control.switches.{name}") for name in names]
    defined = [value for module in modules for value in vars(module).values() if isinstance(value, Switch)]
    assert len(defined) == len(SWITCHES) and all(any(one is other for other in SWITCHES) for one in defined)
    assert len(set(IDS)) == len(IDS)


@pytest.mark.parametrize("switch", SWITCHES, ids=IDS)
def test_words(switch: Switch) -> None:
    assert switch.name.isidentifier() and switch.what.endswith(".") and switch.why.endswith(".")
    assert not switch.what.isupper()


@pytest.mark.parametrize("switch", SWITCHES, ids=IDS)
def test_looking_at_it_changes_and_imports_nothing(switch: Switch) -> None:
    before, modules = everything(), set(sys.modules)
    if switch.available():
        switch.read()
        switch.save_setting()
    assert everything() == before and set(sys.modules) == modules


def test_every_switch_that_can_be_set_is_tried() -> None:
    assert {switch.name for switch in HERE} == set(OWN)


@pytest.mark.parametrize("policy", POLICIES, ids=repr)
@pytest.mark.parametrize("switch", HERE, ids=lambda switch: switch.name)
def test_it_is_in_force_inside_and_gone_outside(switch: Switch, policy: Policy) -> None:
    before = everything()
    with samerun.deterministic(0, **arguments(policy)):
        if switch.can_set_wanted_value(policy):
            assert switch.agrees(switch.read(), switch.wanted(policy))
        else:
            assert switch.read() == before["flags"][switch.name]
    assert everything() == before


@pytest.mark.parametrize("inside", [False, True], ids=["set before", "set inside"])
@pytest.mark.parametrize(("name", "number"), EVERY_OWN, ids=str)
@pytest.mark.parametrize("level", ["error", "warn"])
def test_what_the_program_sets_is_given_back(name: str, number: int, inside: bool, level: str) -> None:
    switch = next(one for one in SWITCHES if one.name == name)
    own = OWN[name][number]
    if not inside:
        own()
    before = everything()
    with pytest.raises(KeyError), samerun.deterministic(0, level=level):
        if inside:
            own()
        elif switch.can_set_wanted_value(Policy(level=level)):
            assert switch.agrees(switch.read(), switch.wanted(Policy(level=level)))
        torch.rand(3)
        raise KeyError(name)
    assert everything() == before


@pytest.mark.parametrize(("name", "number"), EVERY_OWN, ids=str)
def test_nested(name: str, number: int) -> None:
    switch = next(one for one in SWITCHES if one.name == name)
    start = everything()
    with samerun.deterministic(1):
        OWN[name][number]()
        outer = everything()
        with samerun.deterministic(2, level="warn", precision="keep"):
            with samerun.deterministic(3, fill_uninitialized_memory=False):
                if switch.can_set_wanted_value(Policy(fill_uninitialized_memory=False)):
                    assert switch.agrees(switch.read(), switch.wanted(Policy(fill_uninitialized_memory=False)))
            OWN[name][0]()
        assert everything() == outer
    assert everything() == start


def test_it_stays_in_force_after_load_state_dict() -> None:
    model = torch.nn.Sequential(torch.nn.Conv2d(1, 2, 3), torch.nn.LSTM(4, 3))
    optimizer = torch.optim.Adam(model.parameters())
    with samerun.deterministic(0):
        before = everything()
        model.load_state_dict(copy.deepcopy(model.state_dict()))
        optimizer.load_state_dict(copy.deepcopy(optimizer.state_dict()))
        assert everything() == before


@pytest.mark.parametrize("broken", [switch.name for switch in HERE if switch.write is not None])
def test_nothing_is_half_done_when_a_switch_fails(broken: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(value: Any) -> None:
        raise OSError(broken)

    switch = next(one for one in SWITCHES if one.name == broken)
    monkeypatch.setattr(torch.backends, "fp32_precision", "tf32")
    before = everything()
    object.__setattr__(switch, "agrees", lambda read, wanted: False)
    write = switch.write
    object.__setattr__(switch, "write", fails)
    object.__setattr__(switch, "restore", switch.restore or write)
    policy = Policy(threads=2)
    try:
        with pytest.raises(OSError, match=broken):
            samerun.deterministic(0, **arguments(policy))
    finally:
        for field in ("agrees", "restore"):
            object.__setattr__(switch, field, ORIGINAL[broken][field])
        object.__setattr__(switch, "write", write)
    assert everything() == before


ORIGINAL = {switch.name: {"agrees": switch.agrees, "restore": switch.restore} for switch in SWITCHES}


# Switches of devices that are not here: what torch offers for them, stood in for.


def test_tunable_op(monkeypatch: pytest.MonkeyPatch) -> None:
    state = {"on": True}
    monkeypatch.setattr(C, "_cuda_tunableop_is_enabled", lambda: state["on"], raising=False)
    monkeypatch.setattr(C, "_cuda_tunableop_enable", lambda on: state.update(on=on), raising=False)
    with samerun.deterministic():
        assert state == {"on": False}
        state["on"] = True
        with samerun.deterministic():
            assert state == {"on": False}
    assert state == {"on": True}


@pytest.mark.parametrize(
    ("name", "function", "wanted", "other"),
    [
        ("preferred_linalg", "preferred_linalg_library", "cusolver", "magma"),
        ("preferred_blas", "preferred_blas_library", "cublas", "cublaslt"),
    ],
)
def test_preferred_libraries(
    name: str, function: str, wanted: str, other: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = {"now": "default"}

    def call(backend: str | None = None) -> str:
        if backend is not None:
            state["now"] = backend
        return f"_Backend.{state['now'].capitalize()}"

    monkeypatch.setattr(torch.backends.cuda, "is_built", lambda: True)
    monkeypatch.setattr(torch.backends.cuda, "preferred_linalg_library", lambda *a: "_Backend.Magma")
    monkeypatch.setattr(torch.backends.cuda, "preferred_blas_library", lambda *a: "_Backend.Cublas")
    monkeypatch.setattr(torch.backends.cuda, function, call)
    with samerun.deterministic():
        assert state == {"now": wanted}
    assert state == {"now": "default"}
    state["now"] = other
    with samerun.deterministic():
        assert state == {"now": other}, "a choice of the user's own stays"
    assert state == {"now": other}

"""How deterministic operators get into torch's dispatcher, and out again."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import samerun
from samerun.base.errors import SamerunError
from samerun.control.deterministic_kernels import install
from samerun.control.deterministic_kernels.table import OPERATORS
from samerun.control.switches import variables
from samerun.control.switches.torch import OPERATORS as SWITCH

EVERY = [(overload, key) for overload, key, _ in install.iterate_kernels_for_torch_build()]
INDEX, VALUES = torch.tensor([1, 1]), torch.tensor([1.0, 2.0])


@pytest.fixture(autouse=True)
def _as_samerun_run_starts_it(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(variables, "read_environ_at_process_start", lambda: {"PYTHONHASHSEED": "0"})
    monkeypatch.setattr(variables, "python_may_hash_with_seed", lambda seed: True)
    monkeypatch.setenv("PYTHONHASHSEED", "0")
    before = dispatcher()
    yield
    assert dispatcher() == before


def dispatcher() -> list[str]:
    """All that torch's dispatcher knows about the operators of the table."""
    names = {f"aten::{overload}" for one in OPERATORS for kernel in one.kernels for overload in kernel.overloads}
    return [torch._C._dispatch_dump(name) for name in sorted(names)]


def works() -> bool:
    """Whether put_ works in deterministic mode, which torch alone refuses."""
    try:
        return torch.zeros(3).put_(INDEX, VALUES).tolist() == [0, 2, 0]
    except RuntimeError as error:
        assert "does not have a deterministic implementation" in str(error)
        return False


def test_in_force_inside_and_gone_after() -> None:
    assert SWITCH.read() == "torch"
    with samerun.deterministic(0):
        assert SWITCH.read() == "samerun" and works()
    assert SWITCH.read() == "torch"


def test_nested_and_left_by_an_exception() -> None:
    with samerun.deterministic(0):
        with pytest.raises(KeyError), samerun.deterministic(1):
            assert works()
            raise KeyError
        assert SWITCH.read() == "samerun" and works()
    torch.use_deterministic_algorithms(True)
    try:
        assert not works()
    finally:
        torch.use_deterministic_algorithms(False)


def test_what_fails_inside_a_kernel_reaches_the_user_and_leaves_nothing() -> None:
    with pytest.raises(IndexError, match="3 elements"), samerun.deterministic(0):
        torch.zeros(3).put_(torch.tensor([7]), torch.ones(1))


def test_a_failure_while_they_are_put_in_force_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[Any] = []

    def fails(*args: Any) -> None:
        done.append(args)
        if len(done) == 3:
            raise SamerunError("no")
        override_kernel_when_deterministic(*args)

    override_kernel_when_deterministic = install.override_kernel_when_deterministic
    monkeypatch.setattr(install, "override_kernel_when_deterministic", fails)
    with pytest.raises(SamerunError, match="no"):
        samerun.deterministic(0).__enter__()
    assert len(done) == 3 and SWITCH.read() == "torch" and not torch.are_deterministic_algorithms_enabled()


def test_a_kernel_of_someone_else_over_ours_is_seen() -> None:
    with samerun.deterministic(0):
        other = torch.library.Library("aten", "IMPL")
        try:
            other.impl("put_", lambda self, *rest: self, "CPU")
            assert SWITCH.read() == "mixed" and torch.zeros(3).put_(INDEX, VALUES).tolist() == [0, 0, 0]
        finally:
            other._destroy()
        assert SWITCH.read() == "samerun"


def test_a_program_that_switches_the_mode_off_has_torchs_kernels() -> None:
    """They are told apart by what they say of bad input."""
    wrong = torch.tensor([0], dtype=torch.int32)
    with samerun.deterministic(0):
        with pytest.raises(RuntimeError, match=r"must be int64 and is torch\.int32"):
            torch.zeros(3).put_(wrong, torch.ones(1))
        torch.use_deterministic_algorithms(False)
        with pytest.raises(RuntimeError, match="Expected a long tensor for index"):
            torch.zeros(3).put_(wrong, torch.ones(1))


def test_backward_in_other_threads_finds_them() -> None:
    """Threads of the program's own, several at once; the switch belongs to the process."""
    results: list[Any] = []

    def train() -> None:
        x = torch.randn(1, 1, 6, 6, generator=torch.Generator().manual_seed(3)).requires_grad_()
        pooled, places = F.max_pool2d(x, 3, 1, return_indices=True)
        F.max_unpool2d(pooled, places, 3, 1, output_size=(6, 6)).pow(2).sum().backward()
        assert x.grad is not None
        results.append(x.grad.tolist())

    with samerun.deterministic(0):
        threads = [threading.Thread(target=train) for _ in range(4)]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
    assert len(results) == 4 and all(one == results[0] for one in results)


def test_a_kernel_may_be_taken_out_while_it_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another thread is inside when the block is left: it ends as it began."""
    inside, go_on = threading.Event(), threading.Event()
    found: list[Any] = []
    zeros = torch.unravel_index

    def slow(*args: Any) -> Any:
        inside.set()
        go_on.wait(10)
        return zeros(*args)

    monkeypatch.setattr(torch, "unravel_index", slow)
    thread = threading.Thread(target=lambda: found.append(torch.zeros(3).put_(INDEX, VALUES).tolist()))
    with samerun.deterministic(0):
        thread.start()
        assert inside.wait(10)
    go_on.set()
    thread.join()
    assert found == [[0, 2, 0]]


def test_results_may_be_written_into_a_tensor_of_the_user() -> None:
    x, places = F.max_pool2d(torch.randn(1, 1, 4, 4), 2, return_indices=True)
    with samerun.deterministic(0):
        wanted = torch.ops.aten.max_unpool2d(x, places, [4, 4])
        out = torch.empty(0)
        assert torch.ops.aten.max_unpool2d.out(x, places, [4, 4], out=out) is out and torch.equal(out, wanted)
        index, values = torch.tensor([0, 0]), torch.tensor([3.0, 4.0])
        strided = torch.zeros(3, 2)[:, 0]
        version = strided._version
        assert strided.put_(index, values) is strided and strided.tolist() == [4, 0, 0]
        assert strided._version > version, "autograd sees that it was written to"


def test_kernels_for_cuda_can_be_registered_where_there_is_no_cuda() -> None:
    library = torch.library.Library("aten", "IMPL")
    try:
        for operator in OPERATORS:
            for kernel in operator.kernels:
                for overload in kernel.overloads:
                    if "CUDA" in kernel.keys:
                        install.override_kernel_when_deterministic(library, overload, "CUDA", kernel)
                        assert __file__ in str(torch.library.get_kernel(f"aten::{overload}", "CUDA"))
    finally:
        library._destroy()


def test_every_kernel_of_the_table_is_registered_for_this_build() -> None:
    assert ("put_", "CPU") in EVERY and ("resize_", "QuantizedCPU") in EVERY
    assert any(key == "CUDA" for _, key in EVERY) == (torch.version.cuda is not None or torch.version.hip is not None)


@pytest.mark.slow
def test_they_are_loaded_only_when_they_are_put_in_force() -> None:
    program = """
import json, sys
import samerun
from samerun.control.determinism.survey import survey
survey()
before = "samerun.control.deterministic_kernels.install" in sys.modules, "torch" in sys.modules
samerun.deterministic(0)
without = "samerun.control.deterministic_kernels.install" in sys.modules, "torch" in sys.modules
import torch
print(json.dumps([before, without, torch.zeros(3).put_(torch.tensor([1, 1]), torch.tensor([1.0, 2.0])).tolist()]))
"""
    environment = {**os.environ, "PYTHONHASHSEED": "0"}
    command = [sys.executable, "-W", "error", "-c", program]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == [[False, False], [False, False], [0, 2, 0]]

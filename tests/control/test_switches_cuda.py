"""Switches and deterministic mode on a CUDA device. Each program runs in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest

from samerun.control.determinism.survey import required_environment

pytestmark = pytest.mark.cuda


def told(program: str, **environment: str) -> Any:
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **required_environment(), **environment},
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


STATE = """
import json, torch, samerun
from samerun.control.switches.table import SWITCHES
def state(): return {s.name: s.read() for s in SWITCHES if s.available()}
"""


def test_every_switch_is_set_and_given_back() -> None:
    program = f"""
{STATE}
torch.cuda.init()
before, streams = state(), torch.cuda.get_rng_state().tolist()
torch.backends.cudnn.benchmark = True
torch.backends.cudnn.benchmark = False
with samerun.deterministic(0):
    from samerun.control.determinism.survey import survey
    wrong = [one.name for one in survey() if one.verdict in ("differs", "too late")]
    torch.rand(3, device="cuda")
print(json.dumps([wrong, state() == before, torch.cuda.get_rng_state().tolist() == streams]))
"""
    assert told(program) == [[], True, True]


def test_entering_starts_no_device() -> None:
    program = "import json, torch, samerun\nsamerun.deterministic(0)\nprint(json.dumps(torch.cuda.is_initialized()))"
    assert told(program) is False


def test_cublas_is_too_late_once_cuda_has_started() -> None:
    program = """
import json, os, torch, samerun
os.environ.pop("CUBLAS_WORKSPACE_CONFIG")
torch.cuda.init()
try:
    samerun.deterministic(0)
except samerun.TooLateError as error:
    print(json.dumps(str(error)))
"""
    assert "CUBLAS_WORKSPACE_CONFIG was not set when CUDA started" in told(program)


@pytest.mark.parametrize(
    "step",
    [
        "torch.zeros(4, device='cuda').index_add_(0, torch.randint(4, (99999,), device='cuda'), x[:99999])",
        "torch.nn.Conv2d(8, 8, 3).cuda()(x[:20000].view(10, 8, 25, 10)).sum().backward()",
        "torch.nn.LSTM(10, 16).cuda()(x[:2000].view(10, 20, 10))[0].sum().backward()",
        "torch.mm(x[:90000].view(300, 300), x[:90000].view(300, 300))",
    ],
)
def test_two_processes_give_the_same_bits(step: str) -> None:
    program = f"""
import json, torch, samerun
samerun.deterministic(0)
x = torch.rand(100000, device="cuda", requires_grad={"backward" in step})
made = {step}
value = x.grad if made is None else made
print(json.dumps(value.flatten()[:5000].double().cpu().tolist()))
"""
    assert told(program) == told(program)
